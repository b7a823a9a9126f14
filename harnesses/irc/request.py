"""A command as somebody gave it, and what a command is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harnesses.irc.access import Identity
from harnesses.irc.network import Network
from storage.entry import Entry
from storage.event import Place, Scope


@dataclass(frozen=True, slots=True)
class Request:
    """A command as somebody gave it. `line` is its line on the way into the log, without an event
    where nothing is logged; `admin` tells whether they may give admin commands."""

    network: Network
    place: Place
    private: bool
    who: Identity
    words: str
    scope: Scope
    line: Entry
    admin: bool

    @property
    def nick(self) -> str:
        """Who asks."""
        return self.who.nick


class Notice(str):
    """The reply of a command that is for the one person only, and not said to all."""

    __slots__ = ()


Command = Callable[[Request], Awaitable[str]]
"""Does what is asked and returns the reply, "" to stay silent."""
