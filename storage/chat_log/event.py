"""Events of the chat log, whose they are, and the scopes in which they may be read.

A private conversation belongs to an identity, not to a nick, which changes hands. Its place is
named after the identity (`Identity.room`), and everything that is kept by place follows: what is
read and searched, memories, conversations, long answers. Such a name never begins as a channel's
does. Private places of earlier versions bear a bare nick, which is nobody's room.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.log_index import SPOKEN_TYPES


class EventType(StrEnum):
    """The kinds of event a log keeps, by their IRC command (ACTION is CTCP ACTION)."""

    PRIVMSG = "PRIVMSG"
    NOTICE = "NOTICE"
    ACTION = "ACTION"
    JOIN = "JOIN"
    PART = "PART"
    QUIT = "QUIT"
    NICK = "NICK"
    KICK = "KICK"
    MODE = "MODE"
    TOPIC = "TOPIC"


SPOKEN = frozenset(map(EventType, SPOKEN_TYPES))
CHANNEL_PREFIXES = "#&+!"
"""A channel begins with one of these (RFC 2811, section 2.1); what does not is private."""


def is_private(name: str) -> bool:
    """Return True if a place of this name is a private one: a person's room, or a `status_room`.

    The name alone decides: a flag beside it could contradict it, and make private words public.
    """
    return not name.startswith(tuple(CHANNEL_PREFIXES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a channel or a private conversation, as the log keeps it.

    `channel` is a channel; in a private conversation it is the other person's `Identity.room`, and
    for words to a part of a channel the `status_room`.
    `target` is the nick kicked or the new nick; `reply_to` the id of the question that one of our
    own lines (`own`) answers. `id` is 0 until the event is stored.
    """

    network: str
    channel: str
    type: EventType
    time: datetime
    nick: str
    text: str = ""
    user: str = ""
    host: str = ""
    account: str | None = None
    target: str = ""
    msgid: str | None = None
    own: bool = False
    reply_to: int | None = None
    id: int = 0

    @property
    def private(self) -> bool:
        """True unless it happened on a channel, where everybody was to see it."""
        return is_private(self.channel)


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as the server shows them. A `bridged` person speaks through a relay: of them only
    the nick is known, and that anybody may choose."""

    nick: str
    user: str = ""
    host: str = ""
    account: str | None = None
    bridged: bool = False

    @classmethod
    def from_event(cls, event: Event) -> Identity:
        """Return the person behind an event of the log."""
        return cls(event.nick, event.user, event.host, event.account)

    @property
    def name(self) -> str:
        """The nick, marked when it is a bridged person's: anybody may have chosen it there, so it
        is not the one who has that nick here."""
        return f"{self.nick}@{self.host}" if self.bridged else self.nick

    @property
    def mask(self) -> str:
        """The whole `nick!user@host`."""
        return f"{self.nick}!{self.user}@{self.host}"

    def room(self, fold: Callable[[str], str]) -> str:
        """Return the name of their private conversation: that of the services account, `~account`,
        else `nick!user@host`; a bare nick, which is nobody's, where the server tells no more."""
        if self.account:
            return f"~{fold(self.account)}"
        if not self.user and not self.host:
            return fold(self.nick)
        return f"{fold(self.nick)}!{self.user.lower()}@{self.host.lower()}"

    def __str__(self) -> str:
        account = f" ({self.account})" if self.account else ""
        return f"{self.mask}{account}"


_STATUS_ROOM = re.compile(r"@[^#\w]*(?P<channel>[#&+!].+)")


def status_room(symbols: str, channel: str) -> str:
    """Return the name of the place where those of a channel talk who have a status: `@#c` for its
    operators. It begins with "@" for each other status too (`@+#c`), as "+" and "&" are also the
    beginnings of channels."""
    return f"@{channel}" if symbols == "@" else f"@{symbols}{channel}"


def channel_of_room(name: str) -> str:
    """Return the channel of a `status_room`; any other name is returned as it is."""
    match = _STATUS_ROOM.fullmatch(name)
    return match["channel"] if match else name


@dataclass(frozen=True, slots=True)
class Place:
    """A channel of a network, or a private conversation on it by the name of its room."""

    network: str
    channel: str

    def __str__(self) -> str:
        return f"{self.network}/{self.channel}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which places may be read: those named, or (None) every channel. Of the private ones only
    those that are named, unless `private`."""

    places: frozenset[Place] | None
    private: bool = False

    @classmethod
    def from_places(cls, *places: Place) -> Scope:
        """Only these places."""
        return cls(frozenset(places))


PUBLIC = Scope(None)
EVERYTHING = Scope(None, private=True)
"""Private conversations too: for whoever keeps the file, never for a reader."""
