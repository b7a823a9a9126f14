"""From a fresh connection to a welcome: what is sent when, and a nick."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from harnesses.irc.protocol.message import Message

RETRY_FIRST, RETRY_LONGEST = 2.0, 60.0
"""Seconds between further nicks when the first three are taken."""

SHORTEST_LIMIT = 9
"""Characters of a nick that every server takes (RFC 1459, section 1.2)."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message to send, `delay` seconds from now; `urgent` ones overtake those that wait,
    `idle` ones are overtaken by all.

    A delayed message is not sent when `unless` says so at its time.
    """

    message: Message
    delay: float = 0.0
    urgent: bool = False
    idle: bool = False
    unless: Callable[[], bool] | None = None


class NickPicker:
    """The nick we ask for: the wanted one, with `_`, with `__`, then with random letters.

    `suffix` makes the random letters.
    """

    def __init__(self, wanted: str, suffix: Callable[[], str] | None = None) -> None:
        self._wanted = wanted
        self._suffix = suffix or _random_letters
        self._refused = 0

    def start(self) -> Message:
        """Ask for the nick that is wanted."""
        return Message("NICK", (self._wanted,))

    def next_nick(self, invalid: bool) -> QueuedMessage:
        """Return the next nick after a refusal: one line a refusal, and from the third on it waits.

        `invalid` means that the server takes no such nick at all; a short plain one follows.
        """
        self._refused += 1
        if self._refused <= 2 and not invalid:
            return QueuedMessage(
                Message("NICK", (self._wanted + "_" * self._refused,)), urgent=True
            )
        plain = "".join(c for c in self._wanted if c.isascii() and c.isalpha())
        cut = self._wanted[:SHORTEST_LIMIT]
        if invalid and self._refused == 1 and cut != self._wanted and cut.isascii():
            # It may only have been too long: 005, which tells NICKLEN, comes after the welcome.
            return QueuedMessage(Message("NICK", (cut,)), urgent=True)
        # Short, as a server that cuts nicks would make the same taken one of it again and again.
        base = plain[:4] if invalid else f"{self._wanted[:5]}_"
        doublings = max(0, self._refused - 3)
        delay = min(RETRY_FIRST * 2**doublings, RETRY_LONGEST) if self._refused > 2 else 0.0
        return QueuedMessage(
            Message("NICK", ((base or "bot") + self._suffix(),)), delay, urgent=True
        )


def _random_letters() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=4))
