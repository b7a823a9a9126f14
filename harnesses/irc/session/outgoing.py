"""Outgoing messages with their scheduling, and the choice of a nick during registration."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

from harnesses.irc.protocol.message import Message

RETRY_FIRST, RETRY_MAX = 2.0, 60.0
"""Seconds before the next nick is tried once three were refused: the first wait and the longest."""

MIN_NICKLEN = 9
"""Length of a nick that every server accepts (RFC 1459, section 1.2)."""


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message to send, `delay` seconds from now.

    `urgent` messages go out before all others, `idle` ones after all others. A delayed message is
    dropped if `unless()` is true when it is due.
    """

    message: Message
    delay: float = 0.0
    urgent: bool = False
    idle: bool = False
    unless: Callable[[], bool] | None = None


class NickPicker:
    """The sequence of nicks to try: the wanted one, then with `_`, with `__`, with random letters.

    `suffix` generates the random letters.
    """

    def __init__(self, wanted: str, suffix: Callable[[], str] | None = None) -> None:
        self._wanted = wanted
        self._suffix = suffix or _random_letters
        self._refused = 0

    def start(self) -> Message:
        """Return the NICK message for the wanted nick."""
        return Message("NICK", (self._wanted,))

    def next_nick(self, invalid: bool) -> QueuedMessage:
        """Return the NICK message to send after a refusal, delayed from the third refusal on.

        `invalid` means that the server does not accept such a nick at all (432); the next one is
        short and has only ASCII letters.
        """
        self._refused += 1
        if self._refused <= 2 and not invalid:
            return QueuedMessage(
                Message("NICK", (self._wanted + "_" * self._refused,)), urgent=True
            )
        plain = "".join(c for c in self._wanted if c.isascii() and c.isalpha())
        cut = self._wanted[:MIN_NICKLEN]
        if invalid and self._refused == 1 and cut != self._wanted and cut.isascii():
            # It may only have been too long: NICKLEN is not known before 005, after the welcome.
            return QueuedMessage(Message("NICK", (cut,)), urgent=True)
        # Keep it short: a server that truncates nicks would cut off the random letters and so find
        # the same nick in use each time.
        base = plain[:4] if invalid else f"{self._wanted[:5]}_"
        doublings = max(0, self._refused - 3)
        delay = min(RETRY_FIRST * 2**doublings, RETRY_MAX) if self._refused > 2 else 0.0
        return QueuedMessage(
            Message("NICK", ((base or "bot") + self._suffix(),)), delay, urgent=True
        )


def _random_letters() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=4))
