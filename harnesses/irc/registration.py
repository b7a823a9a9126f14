"""From a fresh connection to a welcome: capabilities and a nick.

The rules are those of https://ircv3.net/specs/extensions/capability-negotiation. A server that
does not know CAP answers 421 or nothing at all, and welcomes us all the same.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harnesses.irc.message import Message

WANTED = frozenset(
    (
        "server-time", "message-tags", "batch", "msgid", "account-tag", "account-notify",
        "extended-join", "chghost", "setname", "away-notify", "multi-prefix",
        "userhost-in-names", "invite-notify", "cap-notify",
    )
)  # fmt: skip
"""Capabilities that we know what to do with; only what a server offers is requested."""

RETRY_FIRST, RETRY_LONGEST = 2.0, 60.0
"""Seconds between further nicks when the first three are taken."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, `delay` seconds from now; `urgent` ones overtake those that wait."""

    message: Message
    delay: float = 0.0
    urgent: bool = False


class Capabilities:
    """CAP negotiation. `enabled` holds what the server has acknowledged."""

    def __init__(self) -> None:
        self.enabled: set[str] = set()
        self._offered: set[str] = set()
        self._unanswered = 0
        self._ended = False

    def start(self) -> Message:
        """The first line of a connection."""
        return Message("CAP", ("LS", "302"))

    def receive(self, message: Message) -> list[Message]:
        """Take a CAP message of the server; return the answers."""
        names = [word.partition("=")[0] for word in message.params[-1].split()]
        match message.param(1).upper():
            case "LS":
                self._offered.update(names)
                more = message.param(2) == "*" and len(message.params) > 3
                return [] if more else self._ask(self._offered)
            case "NEW":
                return self._ask(names)
            case "DEL":
                self.enabled.difference_update(names)
            case "ACK":
                self._acknowledge(names)
                return self._answered([])
            case "NAK":
                # One refused name refuses the whole line: ask for each by itself.
                return self._answered(names if len(names) > 1 else [])
        return []

    def welcomed(self) -> None:
        """The server has let us in; there is nothing to end any more."""
        self._ended = True

    def _ask(self, names: Iterable[str]) -> list[Message]:
        wanted = sorted(WANTED.intersection(names) - self.enabled)
        if not wanted:
            return self._end()
        self._unanswered += 1
        return [Message("CAP", ("REQ", " ".join(wanted)))]

    def _answered(self, again: list[str]) -> list[Message]:
        self._unanswered += len(again) - 1
        return [Message("CAP", ("REQ", name)) for name in again] + self._end()

    def _acknowledge(self, names: list[str]) -> None:
        for name in names:
            if name.startswith("-"):
                self.enabled.discard(name[1:])
            else:
                self.enabled.add(name)

    def _end(self) -> list[Message]:
        if self._ended or self._unanswered > 0:
            return []
        self._ended = True
        return [Message("CAP", ("END",))]


class NickChoice:
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

    def refused(self, invalid: bool) -> Outgoing:
        """The next nick after a refusal: one line a refusal, and from the third on it waits.

        `invalid` means that the server takes no such nick at all; a short plain one follows.
        """
        self._refused += 1
        if self._refused <= 2 and not invalid:
            return Outgoing(Message("NICK", (self._wanted + "_" * self._refused,)), urgent=True)
        base = self._wanted[:4] if invalid else f"{self._wanted}_"
        plain = "".join(c for c in base if c.isascii() and c.isalpha()) if invalid else base
        doublings = max(0, self._refused - 3)
        delay = min(RETRY_FIRST * 2**doublings, RETRY_LONGEST) if self._refused > 2 else 0.0
        return Outgoing(Message("NICK", ((plain or "bot") + self._suffix(),)), delay, urgent=True)


def _random_letters() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=4))
