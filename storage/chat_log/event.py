"""Events of the chat log, the places and people they belong to, and the scopes of readers.

A private conversation belongs to an identity, not to a nick, because nicks change hands. Its place
is named after the identity (`Identity.room`), and so is everything stored by place: what is read
and searched, memories, conversations, long answers. Such a name never begins with a channel prefix.
Private places of earlier versions are named by a bare nick, and are nobody's room.
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
    """Types of events in the log, named by their IRC command (ACTION is a CTCP ACTION)."""

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
NICK_GAP = "\u200b"
"""Stands in the nicks of quotes, so that no client highlights them to their owners; people copy it
with the nick."""
CHANNEL_PREFIXES = "#&+!"
"""The first characters of channel names (RFC 2811, section 2.1); any other name is private."""
_ROOM_SIGNS = f"~@{CHANNEL_PREFIXES}"  # the first characters of places not named after a nick


def is_private(name: str) -> bool:
    """Return True if a place of this name is private: a person's room, or a `status_room`.

    The name alone decides: a separate flag could contradict it, and make private lines public.
    """
    return not name.startswith(tuple(CHANNEL_PREFIXES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event on a channel or in a private conversation, as the log stores it.

    `channel` is the name of a channel, of the other person's `Identity.room` in a private
    conversation, or of a `status_room`. `target` is the nick that was kicked, or the new nick.
    `own` marks our own lines, and `reply_to` is the id of the question that one of them answers;
    `quotes`, the ids of the lines that it repeats, are stored but not read again. `id` is 0 until
    the event is stored.
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
    quotes: frozenset[int] = frozenset()
    id: int = 0

    @property
    def private(self) -> bool:
        """True unless it happened on a channel, in front of everybody there."""
        return is_private(self.channel)


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as the server shows them; of a `bridged` one, who speaks through a relay, only a
    nick is known, which anybody there may choose."""

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
        """The nick, with the relay's host appended for a bridged person, so that nobody takes them
        for the owner of the same nick on this network."""
        return f"{self.nick}@{self.host}" if self.bridged else self.nick

    @property
    def mask(self) -> str:
        """The whole `nick!user@host`."""
        return f"{self.nick}!{self.user}@{self.host}"

    def room(self, fold: Callable[[str], str]) -> str:
        """Return the name of the person's private room, with nick and account folded by `fold`.

        It is `~account` for somebody logged in to services, else `nick!user@host`. Where the server
        tells only the nick, it is the bare nick, which is nobody's room. No nick makes it the name
        of a channel, or of another person's room.
        """
        if self.account:
            return f"~{fold(self.account)}"
        # IRC allows none of these signs in a nick, but other media may.
        signs = (
            f"%{ord(sign):02x}" if sign in "!%" or (at == 0 and sign in _ROOM_SIGNS) else sign
            for at, sign in enumerate(self.nick)
        )
        nick = fold("".join(signs))
        if not self.user and not self.host:
            return nick
        return f"{nick}!{self.user.lower()}@{self.host.lower()}"

    def key(self, fold: Callable[[str], str]) -> str:
        """Return the key of the person's conversations and memories: the name of their private room
        or, as only the nick of a bridged person is known, their `name`."""
        return fold(self.name) if self.bridged else self.room(fold)

    def __str__(self) -> str:
        account = f" ({self.account})" if self.account else ""
        return f"{self.mask}{account}"


_KEY_ESCAPES = str.maketrans({"/": "%2F", "%": "%25"})


def escape_name(name: str) -> str:
    """Return the name of a place or a person as it stands in the keys of memory, whose parts
    slashes separate: else the channel "#a/bob" would have the key of bob's conversation on "#a"."""
    return name.translate(_KEY_ESCAPES)


_STATUS_ROOM = re.compile(r"@[^#\w]*(?P<channel>[#&+!].+)")


def status_room(symbols: str, channel: str) -> str:
    """Return the name of the place of messages to the members of a channel with a status
    (STATUSMSG): `@#c` for its operators, `@+#c` for `+`.

    Every such name begins with "@", because "+" and "&" alone would make it a channel's name.
    """
    return f"@{channel}" if symbols == "@" else f"@{symbols}{channel}"


def channel_of_room(name: str) -> str:
    """Return the channel of a `status_room`, and any other name unchanged."""
    match = _STATUS_ROOM.fullmatch(name)
    return match["channel"] if match else name


@dataclass(frozen=True, slots=True)
class Place:
    """A channel of a network, or a private room on it."""

    network: str
    channel: str

    def __str__(self) -> str:
        return f"{self.network}/{self.channel}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The places that a reader may see: those in `places` or, if that is None, all channels and, if
    `private`, private places."""

    places: frozenset[Place] | None
    private: bool = False

    @classmethod
    def from_places(cls, *places: Place) -> Scope:
        """Return the scope of these places only."""
        return cls(frozenset(places))

    def covers(self, place: Place) -> bool:
        """Return whether a reader may see a place; names of channels ignore case."""
        if self.places is None:
            return self.private or not is_private(place.channel)
        return str(place).lower() in {str(each).lower() for each in self.places}


PUBLIC = Scope(None)
EVERYTHING = Scope(None, private=True)
"""All places, private ones included: for the operator and for maintenance, never for a reader."""


_MASK = re.compile(r"(?P<nick>[^\s!@]*)(?P<bang>!?)[^\s@]*@\S+")  # nick!user@host, or user@host


def public_text(event: Event) -> str:
    """Return the text of an event in publishable form: without the user names and hosts in the
    masks of bans, which can identify people."""
    if event.type is not EventType.MODE:
        return event.text
    return _MASK.sub(lambda mask: f"{mask['nick'] if mask['bang'] else '*'}!*@*", event.text)


_HOST = re.compile(r"![^/]*@[^/]*$")


def without_host(conversation: str) -> str:
    """Return the name of a conversation in publishable form, without a person's user and host."""
    return _HOST.sub("", conversation)


def event_line(event: Event) -> str:
    """Format an event as a line without its time: `<nick> text`, `* nick text`, `*** nick left`.
    Text is not escaped."""
    speech = {
        EventType.PRIVMSG: f"<{event.nick}> {event.text}",
        EventType.NOTICE: f"-{event.nick}- {event.text}",
        EventType.ACTION: f"* {event.nick} {event.text}",
    }
    return speech.get(event.type) or f"*** {event.nick} {describe_event(event)}"


def describe_event(event: Event) -> str:
    """Describe what the nick of an event did, without the nick; of speech, return the text."""
    text, target = event.text, event.target
    reason = f" ({text})" if text else ""
    descriptions = {
        EventType.JOIN: "joined",
        EventType.PART: f"left{reason}",
        EventType.QUIT: f"quit{reason}",
        EventType.NICK: f"is now known as {target}",
        EventType.KICK: f"kicked {target}{reason}",
        EventType.MODE: f"set mode {public_text(event)}",
        EventType.TOPIC: f"set the topic: {text}" if text else "cleared the topic",
    }
    return descriptions.get(event.type, text)


VISIBILITY_TIMEOUT = 2.0
"""Seconds to wait for an event to become visible in the log. It takes longer only when the disk is
full or the file is damaged, and then an answer is sent without waiting for the log."""


class PendingEvent:
    """An event in the log's queue: first visible to readers, then durable.

    `answers` is the pending event of the question that a line of our own answers. A pending event
    without an `event` stores nothing and only marks a position in the queue. It must be created in
    a running event loop.
    """

    def __init__(self, event: Event | None, answers: PendingEvent | None = None) -> None:
        self.event = event
        self.answers = answers
        self.id = 0
        self.before: PendingEvent | None = None
        """The pending event that was queued just before this one, until this one is settled."""
        self._newest = 0
        loop = asyncio.get_running_loop()
        self._until = loop.time() + VISIBILITY_TIMEOUT
        self._written: asyncio.Future[None] = loop.create_future()
        self.durable: asyncio.Future[int] = loop.create_future()
        """Resolves to the id once the event is fsynced; cancelled if the event is dropped."""

    @classmethod
    def stored(cls, event_id: int, event: Event | None = None) -> PendingEvent:
        """Return what stands for a line that is in the log already, or with the id 0 in none."""
        pending = cls(event)
        pending.mark_settled(event_id)
        return pending

    @property
    def is_settled(self) -> bool:
        """True once the event is committed, or dropped."""
        return self._written.done()

    async def boundary_id(self) -> int:
        """Wait until everything queued before is visible, and return an id that separates it from
        this event.

        The id is greater than the ids of all events queued before, and not greater than this
        event's own. It is 0 if there is no event at all, or if events cannot be stored.
        """
        # This event itself need not be written yet: a prompt needs only what came before.
        before = self.before or self
        await before.wait_visible()
        if before is not self and before._newest:
            return before._newest + 1
        return await self.wait_visible() or (self._newest and self._newest + 1)

    async def wait_visible(self) -> int:
        """Wait until the event is visible to readers, and return its id; 0 if there is none, or if
        it still is not `VISIBILITY_TIMEOUT` seconds after it was queued."""
        if not self._written.done():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    # Shielded, because a waiter that is cancelled would cancel the future itself.
                    await asyncio.shield(self._written)
        return self.id

    def mark_settled(self, event_id: int, newest: int = 0) -> None:
        """Record that the event was committed, or with the id 0 that it will not be. `newest` is
        the id of the last event stored up to here, for a position without an event."""
        self.id, self._newest = event_id, event_id or newest
        self.before = None  # or the chain would keep all events ever queued in memory
        self._written.set_result(None)

    def mark_durable(self) -> None:
        """Record that the event was fsynced."""
        if not self.durable.cancelled():
            self.durable.set_result(self.id)
