"""Events of the chat log, and the scopes in which they may be read."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a channel or a private conversation, as the log keeps it.

    `channel` is a channel, or in a private conversation (`private`) the other person's nick.
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
    private: bool = False
    reply_to: int | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A channel of a network, or a private conversation with a nick on it."""

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
