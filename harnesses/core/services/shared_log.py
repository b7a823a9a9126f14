"""The log that all tendrils share, as one of them writes and reads it.

Each tendril records what is said on its medium under a separate network name. The web pages, the
HTTP API, search, scopes, statistics and erasure then work for it as they do for IRC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial

from llm.client.client import AgentClient
from llm.log_questions import Link, Quoting
from llm.prompt.log_window import LogWindow, WindowStarts
from llm.retrieval import LineEmbedding, Retrieval
from llm.tools.log_search import LogTools
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import (
    Event,
    EventType,
    Identity,
    PendingEvent,
    Place,
    Scope,
    escape_name,
)
from storage.chat_log.event_table import id_at
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from storage.queues.unasked import Signal, Signals
from storage.queues.unasked import SignalKind as SignalKind
from storage.search.models import Order, SearchQuery
from terrarium.clock import Clock

_LINES = 50  # the default length of a log window


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """A line on its way into the log, with its place, author and text.

    `pending` has no event if the line is not logged; then nothing of it may be remembered either.
    `msgid` and `thread` are the ids that the medium gave the line and its thread, "" for none.
    """

    place: Place
    who: Identity
    text: str
    pending: PendingEvent
    msgid: str = ""
    thread: str = ""

    @property
    def is_logged(self) -> bool:
        """True if the log keeps the line."""
        return self.pending.event is not None


class TendrilLog:
    """The shared log, for a tendril whose rooms are on `network`.

    A room whose name begins with "#" is public: it is listed, shown and searched. Any other is
    private. `chat_log` is the log of all tendrils, in `database`; `opt_outs`, to be loaded, are the
    people who are not logged; `retrieval` finds lines. With a `client`, which computes embeddings,
    it finds them by meaning too, and `line_embedding` embeds them. Quoted times are in `zone`.
    `members` returns the nicks of those in a place, None where nobody knows.
    """

    members: Callable[[Place], Sequence[str]] | None = None

    def __init__(
        self,
        database: Database,
        chat_log: ChatLog,
        network: str,
        clock: Clock,
        zone: tzinfo,
        client: AgentClient | None = None,
    ) -> None:
        self.database, self.chat_log, self.network = database, chat_log, network
        self.opt_outs = OptOuts(database)
        self.retrieval = Retrieval(chat_log, client)
        self.line_embedding = LineEmbedding(database, client) if client else None
        self._clock, self._quoting = clock, Quoting(zone)
        self._starts: WindowStarts = {}

    def place(self, room: str | Place) -> Place:
        """Return the place of a room of this tendril in the log; a place, as one of several
        networks, is returned as it is."""
        return room if isinstance(room, Place) else Place(self.network, room)

    def record(
        self,
        room: str | Place,
        who: Identity,
        text: str,
        *,
        type: EventType = EventType.PRIVMSG,
        may_log: bool = True,
        msgid: str = "",
        thread: str = "",
    ) -> LoggedLine:
        """Queue a line that a person has just said in a room, and return at once.

        It is not kept if the person has opted out, with "[nolog]" in it, or unless it `may_log`.
        By the `msgid` of the medium it can be redacted.
        """
        place = self.place(room)
        event = replace(
            self._event(place, who.nick, text, type),
            user=who.user,
            host=who.host,
            account=who.account,
            msgid=msgid or None,
        )
        return LoggedLine(place, who, text, self.write(event, may_log=may_log), msgid, thread)

    def record_own(
        self,
        room: str | Place,
        nick: str,
        text: str,
        answers: LoggedLine | None = None,
        *,
        quotes: Collection[int] = (),
    ) -> None:
        """Queue a text that this tendril has said in a room under its `nick`.

        With the line that it `answers`, it is kept only if that is, and erased together with it; it
        is also erased with any of the lines that it `quotes` (ids of the log).
        """
        if answers and not answers.is_logged:
            return
        event = self._event(self.place(room), nick, text, EventType.PRIVMSG)
        for line in split_lines(replace(event, own=True, quotes=frozenset(quotes))):
            self.chat_log.write(line, answers.pending if answers else None)

    def write(self, event: Event, *, may_log: bool = True) -> PendingEvent:
        """Queue an event, split into its lines, and return the first one's pending event.

        That has no event, and only marks a position in the queue, unless it `may_log` the event and
        the person has not opted out.
        """
        keeps = may_log and self.opt_outs.opt_out_rules.keeps(event)
        lines = split_lines(event) if keeps else [None]
        first, *_ = [self.chat_log.write(line) for line in lines]
        return first

    async def signal(self, kind: SignalKind, place: Place, about: str) -> None:
        """Store a signal for whoever speaks in a public place. Raises StorageError."""
        if is_public(place):
            await Signals(self.database).put(Signal(self._clock.now(), kind, place, about))

    def window(self, line: LoggedLine, *, last: int = _LINES) -> LogWindow:
        """Return the log window of the turn that answers a line: the `last` lines before it in its
        room, or more."""
        event, place = line.pending.event, line.place
        asked = event.time if event else self._clock.now()
        return LogWindow(
            log=self.chat_log,
            place=place,
            anchor=id_at(asked),
            last=last,
            speaker=line.who.nick,
            starts=self._starts,
            pending_event=line.pending,
            people=self.members(place) if self.members else (),
            quoting=self._quoting,
            retrieval=self.retrieval,
        )

    def view(self, scope: Scope, who: Identity, link: Link) -> LogWindow:
        """Return the view of somebody who asks outside the log and may read a scope; `link` returns
        the link of a quoted line."""
        return LogWindow(
            log=self.chat_log,
            place=Place(self.network, who.nick),
            anchor=id_at(self._clock.now()),
            last=0,
            scope=scope,
            speaker=who.nick,
            quoting=replace(self._quoting, link=link),
            retrieval=self.retrieval,
        )

    def tools(
        self, room: str | Place, *more: str | Place, before: LoggedLine | None = None
    ) -> LogTools:
        """Return tools by which a model can search these rooms, as they were before a line, and
        look who is there."""
        members, rooms = self.members, [self.place(each) for each in (room, *more)]
        return replace(
            self.tools_within(Scope.from_places(*rooms)),
            before=before.pending if before else None,
            present=members and (lambda: {each: members(each) for each in rooms}),
        )

    def tools_within(self, scope: Scope) -> LogTools:
        """Return tools by which a model can search a scope."""
        return LogTools(
            log=self.chat_log,
            scope=scope,
            retrieval=self.retrieval,
            answers=partial(whole_answers, Conversations(self.database), room_name),
        )

    async def search(
        self, words: str, room: str | Place, *more: str | Place, limit: int = 20
    ) -> Sequence[Event]:
        """Return the newest lines of these rooms that match the words, in order of time; those
        that were just recorded too. Raises StorageError."""
        await self._all_visible()
        within = Query(scope=self._scope(room, *more), limit=limit)
        page = await self.chat_log.search(SearchQuery(text=words, within=within, order=Order.TIME))
        return [hit.event for hit in page.hits][::-1]

    async def recent(self, room: str | Place, *, limit: int = 20) -> Sequence[Event]:
        """Return the newest events of a room, in order of time; those that were just recorded too.
        Raises StorageError."""
        await self._all_visible()
        return await self.chat_log.find(Query(scope=self._scope(room), limit=limit))

    async def _all_visible(self) -> None:
        await self.chat_log.write(None).wait_visible()

    def _scope(self, *rooms: str | Place) -> Scope:
        return Scope.from_places(*map(self.place, rooms))

    def _event(self, place: Place, nick: str, text: str, type: EventType) -> Event:
        return Event(
            network=place.network,
            channel=place.channel,
            type=type,
            time=self._clock.now(),
            nick=nick,
            text=text,
        )


async def whole_answers(
    conversations: Conversations, room: Callable[[Place], str], events: Sequence[Event]
) -> Mapping[int, str]:
    """Return the whole answers that lines of ours begin, as far as `conversations` remember them,
    by the ids of the questions' events; `room` names the room of a place there."""
    questions: dict[str, set[int]] = {}
    for event in events:
        if event.own and event.reply_to:
            place = Place(event.network, event.channel)
            questions.setdefault(room(place), set()).add(event.reply_to)
    found: dict[int, str] = {}
    for name, ids in questions.items():
        found |= await conversations.answers(name, ids)
    return found


def is_public(place: Place) -> bool:
    """Return whether a place is a channel, which the web pages list and show."""
    return ChannelName(None, place.channel).is_channel


def split_lines(event: Event) -> list[Event]:
    """Split an event into one for each line of its text."""
    return [replace(event, text=line) for line in event.text.split("\n")]


def room_name(place: Place) -> str:
    """Return the key of a place in memory, `network/room`."""
    return f"{place.network}/{escape_name(place.channel.lower())}"


def conversation_name(place: Place, who: Identity, thread: str = "") -> str:
    """Return the name of a person's conversation in a place.

    In public each person has a separate one, so that nobody waits for another's answer, and another
    one in each `thread`. A private room has a single one.
    """
    if not is_public(place):
        return room_name(place)
    # No name of a room has "%:", as "%" is escaped.
    where = f"{room_name(place)}%:{escape_name(thread)}" if thread else room_name(place)
    return f"{where}/{escape_name(who.key(str.lower))}"
