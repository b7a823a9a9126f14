"""Events of the chat log, stored or on their way: whose they are, and who may read them.

A private conversation belongs to an identity, not to a nick, which changes hands. Its place is
named after the identity (`Identity.room`), and everything that is kept by place follows: what is
read and searched, memories, conversations, long answers. Such a name never begins as a channel's
does. Private places of earlier versions bear a bare nick, which is nobody's room.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
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


_MASK = re.compile(r"(?P<nick>[^\s!@]*)(?P<bang>!?)[^\s@]*@\S+")  # nick!user@host, or user@host


def public_text(event: Event) -> str:
    """Return the text of an event as it may be published: user names and hosts, which can identify
    people, are left out of the masks of bans."""
    if event.type is not EventType.MODE:
        return event.text
    return _MASK.sub(lambda mask: f"{mask['nick'] if mask['bang'] else '*'}!*@*", event.text)


def event_line(event: Event) -> str:
    """Return an event as a line without its time: `<nick> text`, `* nick text`, `*** nick left`.

    What people wrote stands in it as it is, also line breaks and control characters.
    """
    match event.type:
        case EventType.PRIVMSG:
            return f"<{event.nick}> {event.text}"
        case EventType.NOTICE:
            return f"-{event.nick}- {event.text}"
        case EventType.ACTION:
            return f"* {event.nick} {event.text}"
    return f"*** {event.nick} {describe_event(event)}"


def describe_event(event: Event) -> str:
    """Return what the nick of an event did, in words, without the nick; of speech, its text."""
    text, target = event.text, event.target
    reason = f" ({text})" if text else ""
    match event.type:
        case EventType.JOIN:
            return "joined"
        case EventType.PART:
            return f"left{reason}"
        case EventType.QUIT:
            return f"quit{reason}"
        case EventType.NICK:
            return f"is now known as {target}"
        case EventType.KICK:
            return f"kicked {target}{reason}"
        case EventType.MODE:
            return f"set mode {public_text(event)}"
        case EventType.TOPIC:
            return f"set the topic: {text}" if text else "cleared the topic"
    return text


PATIENCE = 2.0
"""Seconds for which somebody waits for an event to be in the log. Longer than that it takes where
the disk is full or the file damaged; then an answer goes out without."""


class PendingEvent:
    """An event in the log's queue, with its place in the order of all that was queued.

    `answers` is the pending event of the question that a line of our own answers. One without an
    event stores nothing and only marks a place in the order. Make it in a running event loop.
    """

    def __init__(self, event: Event | None, answers: PendingEvent | None = None) -> None:
        self.event = event
        self.answers = answers
        self.id = 0
        self._before: PendingEvent | None = None
        self._newest = 0
        loop = asyncio.get_running_loop()
        self._until = loop.time() + PATIENCE
        self._written: asyncio.Future[None] = loop.create_future()
        self.durable: asyncio.Future[int] = loop.create_future()
        """Done with the id once no power cut can undo it."""

    @property
    def is_visible(self) -> bool:
        """True once every reader finds it in the log."""
        return self._written.done()

    def after(self, before: PendingEvent | None) -> None:
        """Set the one that was queued just before."""
        self._before = before

    async def preceding_id(self) -> int:
        """Return the bound of what was queued before it, once all of that is visible.

        It is an id greater than those of all events queued before, and not greater than its own; 0
        when there is no event at all, or when they cannot be stored.
        """
        before = self._before or self
        await before.wait_visible()
        if before is not self and before._newest:
            return before._newest + 1
        return await self.wait_visible() or (self._newest and self._newest + 1)

    async def wait_visible(self) -> int:
        """Return its id, once every reader finds it in the log; 0 of one without an event, and of
        one that has not come so far within `PATIENCE` of being queued."""
        if not self._written.done():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await asyncio.shield(self._written)
        return self.id

    def drop(self) -> None:
        """Record that it will not be stored: too many wait already."""
        self.mark_visible(0)
        self.durable.cancel()

    def mark_visible(self, event_id: int, newest: int = 0) -> None:
        """Record that it has been committed. `newest` is the id of the last event up to it, for one
        that has no event itself."""
        self.id, self._newest = event_id, event_id or newest
        self._before = None  # nor keep all that was ever said
        self._written.set_result(None)

    def mark_durable(self) -> None:
        """Record that it has been fsynced."""
        if not self.durable.cancelled():
            self.durable.set_result(self.id)
