"""The channels of the embedded IRC server."""

from __future__ import annotations

from dataclasses import dataclass, field

from harnesses.irc.ircd.client import Client
from harnesses.irc.protocol.message import Message

SYMBOLS = {"o": "@", "v": "+"}
"""The member modes, highest first."""


@dataclass(slots=True, eq=False)
class Channel:
    """A channel: its members with their modes, in the order of joining."""

    name: str
    created: int
    topic: str = ""
    topic_by: str = ""
    topic_at: int = 0
    modes: set[str] = field(default_factory=lambda: {"n", "t"})
    members: dict[Client, set[str]] = field(default_factory=dict)

    def is_op(self, client: Client) -> bool:
        """Whether `client` is an operator here."""
        return "o" in self.members.get(client, ())

    def may_speak(self, client: Client) -> bool:
        """Whether the modes +n and +m let `client` speak."""
        if client not in self.members:
            return "n" not in self.modes and "m" not in self.modes
        return "m" not in self.modes or bool(self.members[client])

    def symbol(self, client: Client) -> str:
        """The member's highest symbol, or ""."""
        modes = self.members[client]
        return next((symbol for mode, symbol in SYMBOLS.items() if mode in modes), "")

    def send(self, message: Message, but: Client | None = None) -> None:
        """Send `message` to all members except `but`."""
        for member in list(self.members):
            if member is not but:
                member.send(message)
