"""Commands: parsed from a line, and as a request with who gave it and where."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from harnesses.irc.protocol.identity import Identity
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Place, Scope
from storage.chat_log.pending_event import PendingEvent

_COMMAND = re.compile(r"(?P<name>[a-zA-Z]+)(?:\s+(?P<words>.*))?", re.DOTALL)
_OWN_DATA = re.compile(
    r"(?P<name>forget(?= me)|nolog)(?P<words>(?<=forget) me(?: [0-9a-f]{6})?|(?<=nolog) off)?",
    re.IGNORECASE,
)
ASK = "terrarium"


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command by name, and the words after it."""

    command: str
    words: str


def parse_command(text: str, *, prefix: str, nick: str, private: bool) -> ParsedCommand | None:
    """What `text` asks: `.command words`, `nick: words`, and in a private message anything."""
    said = text.strip()
    if said.startswith(prefix) and (match := _COMMAND.fullmatch(said, len(prefix))):
        return ParsedCommand(match["name"].lower(), (match["words"] or "").strip())
    if match := re.match(rf"@?{re.escape(nick)}\s*[:,]\s*(?P<words>.*)", said, re.I | re.DOTALL):
        return _question(match["words"].strip())
    return _question(said) if private and said else None


def _question(words: str) -> ParsedCommand:
    """A question, or a command about one's own data: those are not logged, in whichever form."""
    if match := _OWN_DATA.fullmatch(words):
        return ParsedCommand(match["name"].lower(), (match["words"] or "").strip())
    return ParsedCommand(ASK, words)


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command as somebody gave it. `pending_event` is its line on the way into the log, without
    an event where nothing is logged; `admin` tells whether they may give admin commands. `queued`
    is the time at which a command that waits for its turn was given."""

    network: Network
    place: Place
    private: bool
    who: Identity
    words: str
    scope: Scope
    pending_event: PendingEvent
    admin: bool
    queued: datetime | None = None

    @property
    def nick(self) -> str:
        """Who asks."""
        return self.who.nick


class PrivateReply(str):
    """The reply of a command that is for the one person only, and not said to all."""

    __slots__ = ()


Command = Callable[[CommandRequest], Awaitable[str]]
"""Does what is asked and returns the reply, "" to stay silent."""
