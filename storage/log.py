"""The append-only log of what was said: one writer in order, scoped reading.

Every reader names a `Scope`; `storage.chat_log.query` is the one place where it becomes SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import TypeVar

import structlog

from storage.chat_log import arrivals, deletion, event_table, statistics
from storage.chat_log import query as log_query
from storage.chat_log.arrivals import Arrivals, LogEnd
from storage.chat_log.event import PATIENCE, Event, PendingEvent, Place, Scope
from storage.chat_log.opt_outs import rules
from storage.chat_log.query import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.db.database import Connection, Database
from storage.db.errors import Unavailable
from storage.passages.nearest import find_nearest
from storage.passages.passages import PEOPLE, LineFilter, Passages, find_passages
from storage.search.models import SearchPage, SearchQuery
from storage.search.search import search

__all__ = ["ChannelStats", "ChatLog", "EventContext", "Query", "Stats"]

_BATCH = 2_000  # events that are written in one transaction
_FEW = 10  # events that are written inline
_YIELDS = 2  # turns of the event loop by which a question overtakes its own line in the log
_GATHER = 0.005  # seconds for which written lines gather, so that one fsync serves all
_RETRY_PAUSE = 1.0  # seconds until what the disk did not take is tried again
_CLOSING = 3.0  # seconds that the last batches have to be written

MOST_QUEUED = 20_000
"""Events that wait in memory for a disk that takes none, 20 MB or so."""

T = TypeVar("T")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EventContext:
    """An event and its neighbours on the channel, each list in order of time."""

    before: Sequence[Event]
    event: Event
    after: Sequence[Event]


class ChatLog:
    """The log in a database file. `open` starts the writer that `append` needs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log_writer = LogWriter(database)

    def __repr__(self) -> str:
        return f"<ChatLog, {self._log_writer.queued} events queued>"

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database) -> AsyncIterator[ChatLog]:
        """Open a log that can be written; on leaving, all that was queued has been stored."""
        log = cls(database)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(log._log_writer.run())
            try:
                yield log
            finally:
                await log._log_writer.close(running)
                running.cancel()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Queue an event to be stored; the future has its id once it is durable."""
        return self.write(event).durable

    def write(self, event: Event | None, answers: PendingEvent | None = None) -> PendingEvent:
        """Queue an event and return at once; the result can be awaited.

        `answers` is the pending event of the question that a line of our own answers. None stores
        nothing and only marks a place in the order.
        """
        pending_event = PendingEvent(event, answers)
        self._log_writer.enqueue(pending_event)
        return pending_event

    def guard(self, check: Callable[[Connection], None]) -> None:
        """Have `check` run in each transaction that writes what is queued; what it raises, other
        than Unavailable, ends the log."""
        self._log_writer.check = check

    async def flush(self) -> None:
        """Wait until all that was queued is durable. Raises Unavailable while it cannot be."""
        await self._log_writer.flush()

    @property
    def trouble(self) -> str:
        """Return why nothing can be written at the moment, for people; "" when all is well."""
        return self._log_writer.trouble

    async def add(self, events: Sequence[Event]) -> Sequence[int]:
        """Store many events in one transaction and return their ids: for imports, which should
        bring some thousands at a time, in order of time. Raises Unavailable."""
        return await self._database.write(lambda db: event_table.insert(db, events))

    async def remove(self, ids: Sequence[int]) -> int:
        """Remove events from the log, the index and the counts, whatever their channel; how many
        there were. Words of theirs stay in the file until `scrub`. Raises Unavailable."""
        return await deletion.remove(self._database, ids)

    async def scrub(self) -> None:
        """Take the last traces of removed events out of the index. Raises Unavailable."""
        await deletion.scrub(self._database)

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """Return the newest (or oldest) events that fit `query`, in order of time either way."""
        return await self._database.read(lambda db: log_query.find(db, query, newest=newest))

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """Return the newest events that fit each query, in order of time, for a model to read.

        All are read from one snapshot, without what people said who have opted out.
        """

        def select(db: Connection) -> list[list[Event]]:
            hides = rules(db).hides
            found = log_query.newest(db, queries)
            return [[event for event in events if not hides(event)] for events in found]

        return await self._database.read(select, inline=True)

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Return the `events` that are not by people who have opted out."""
        hides = (await self._database.read(rules)).hides
        return [event for event in events if not hides(event)]

    async def arrivals(self, query: Query, position: int) -> Arrivals:
        """Return the events that fit `query` and came after a position, in the order in which they
        came, whatever their times."""
        return await self._database.read(lambda db: arrivals.after(db, query, position))

    async def arrival_of(self, event_id: int) -> int | None:
        """Return the position of an event; None of one that came long ago, or as history."""
        return await self._database.read(lambda db: arrivals.position_of(db, event_id))

    async def end(self) -> LogEnd:
        """Return where the log ends at the moment."""
        return await self._database.read(arrivals.end)

    async def newest_arrival(self, query: Query) -> int:
        """Return the id of the last event to come that fits `query`; 0 when there is none."""
        return await self._database.read(lambda db: arrivals.newest_id(db, query))

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """Return an event, if it exists and may be seen."""
        query = Query(scope=scope, after_id=event_id - 1, before_id=event_id + 1, limit=1)
        found = await self.find(query)
        return found[0] if found else None

    async def context(
        self, scope: Scope, event_id: int, *, before: int, after: int
    ) -> EventContext | None:
        """Return an event with those just before and after it on its channel, if it may be seen."""
        event = await self.get(scope, event_id)
        if event is None:
            return None
        query = Query(scope=Scope.from_places(Place(event.network, event.channel)))
        older = Query(scope=query.scope, before_id=event_id, limit=before)
        newer = Query(scope=query.scope, after_id=event_id, limit=after)
        return EventContext(await self.find(older), event, await self.find(newer, newest=False))

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return a page of the lines that a search finds. Raises BadCursor."""
        return await self._database.read(lambda db: search(db, search_query))

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """Search for a model to read: without what people said who have opted out."""
        hides = (await self._database.read(rules)).hides
        page = await self.search(search_query)
        return replace(page, hits=tuple(hit for hit in page.hits if not hides(hit.event)))

    async def passages(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Return the lines that likeliest answer a plain question, `within.limit` at most."""
        return await self._database.read(
            lambda db: find_passages(db, question, within, line_filter)
        )

    async def passages_for_model(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Retrieve passages for a model to read: without what people said who have opted out."""

        def select(db: Connection) -> Passages:
            hidden = replace(line_filter, hides=rules(db).hides)
            return find_passages(db, question, within, hidden)

        return await self._database.read(select)

    async def nearest_for_model(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """Return the lines nearest in meaning to a question, be they an answer or not, without what
        people said who have opted out."""

        def select(db: Connection) -> Passages:
            hidden = replace(line_filter, hides=rules(db).hides)
            return find_nearest(db, question, within, hidden)

        return await self._database.read(select)

    async def channels(self, scope: Scope) -> list[ChannelStats]:
        """Return the places in scope, the most recently active first."""
        return await self._database.read(lambda db: statistics.channels(db, scope))

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Return totals of the spoken lines that fit `query`."""
        return await self._database.read(lambda db: statistics.stats(db, query, top))

    async def heat_map(self, query: Query) -> HeatMap:
        """Count lines by weekday and hour in UTC, of all time, on the channels of `query`."""
        return await self._database.read(lambda db: statistics.heat_map(db, query))

    async def days(self, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
        """Return the days of `zone` with lines on the channels of `query` from `since` to
        `until`."""
        return await self._database.read(lambda db: statistics.days(db, query, zone))

    async def sparklines(
        self, scope: Scope, until: datetime, days: int = 30
    ) -> dict[Place, tuple[int, ...]]:
        """Count lines of each of the last `days` before `until`, per place that was not silent."""
        return await self._database.read(lambda db: statistics.sparklines(db, scope, until, days))

    async def person(self, scope: Scope, nick: str) -> PersonStats | None:
        """Return the statistics of a nick in scope, None if it never spoke there."""
        return await self._database.read(lambda db: statistics.person(db, scope, nick))


class LogWriter:
    """The writer of the log: a task that commits queued events, and one that fsyncs them.

    Events are stored in the order of the queue. Each becomes visible to readers first and durable
    afterwards: a reader that follows does not wait for the disk, and what is written meanwhile is
    fsynced together. `check` may refuse a transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue()
        self._written: asyncio.Queue[list[PendingEvent]] = asyncio.Queue()
        self._ahead: PendingEvent | None = None
        self._last: PendingEvent | None = None
        self._newest = 0
        self._error = ""
        self._dropped = 0
        self.check: Callable[[Connection], None] | None = None

    @property
    def trouble(self) -> str:
        """Return why nothing can be written at the moment, with what waits; "" when all is well."""
        if not self._error:
            return ""
        lost = f", {self._dropped} more are lost" if self._dropped else ""
        return f"{self._error}; {self.queued} lines wait in memory{lost}"

    @property
    def queued(self) -> int:
        """The number of events that wait to be written."""
        return self._queue.qsize()

    def enqueue(self, pending_event: PendingEvent) -> None:
        """Queue an event and return at once. While the disk takes nothing at most `MOST_QUEUED`
        wait; those that come then are dropped, for the older ones tell what led to it."""
        if self._error and self.queued >= MOST_QUEUED:
            if not self._dropped:
                _log.error("log.dropping", waiting=self.queued)
            self._dropped += 1
            pending_event.drop()
            return
        pending_event.after(self._last)
        self._last = pending_event
        self._queue.put_nowait(pending_event)

    async def run(self) -> None:
        """Store what is queued, for ever.

        While one batch is written the next one gathers, so batches grow under load.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._store_all())

    async def flush(self) -> None:
        """Wait until all that was queued is durable. Raises Unavailable while it cannot be."""
        stored = asyncio.ensure_future(self._queue.join())
        try:
            while not stored.done():
                await asyncio.wait({stored}, timeout=PATIENCE)
                if not stored.done() and self._error:
                    raise Unavailable(self._error)
        finally:
            stored.cancel()

    async def close(self, running: asyncio.Task[None]) -> None:
        """Wait until `run` has stored what is queued, unless it has failed or cannot write."""
        drained = asyncio.ensure_future(self._queue.join())
        await asyncio.wait({drained, running}, timeout=_CLOSING, return_when="FIRST_COMPLETED")
        if not drained.done():
            drained.cancel()
            _log.error("log.lines_lost", lines=self._queue.qsize())

    async def _write_all(self) -> None:
        while True:
            batch = await self._batch()
            if events := [_event(pending_event) for pending_event in batch if pending_event.event]:
                ids = iter(await self._retry(self._write, events))
            for pending_event in batch:
                event_id = next(ids) if pending_event.event else 0
                self._newest = event_id or self._newest
                pending_event.mark_visible(event_id, self._newest)
            self._written.put_nowait(batch)

    async def _batch(self) -> list[PendingEvent]:
        """Return what is queued, up to an answer whose question has no id before it is written."""
        batch = [self._ahead or await self._queue.get()]
        self._ahead = None
        # The lines of this turn of the event loop gather in the batch, and a task that was woken
        # by the same line, as a question is, runs before the event loop is held up by a write.
        for _ in range(_YIELDS):
            await asyncio.sleep(0)
        while len(batch) < _BATCH and not self._queue.empty():
            pending_event = self._queue.get_nowait()
            if pending_event.answers and not pending_event.answers.is_visible:
                self._ahead = pending_event
                break
            batch.append(pending_event)
        return batch

    async def _write(self, events: Sequence[Event]) -> Sequence[int]:
        def work(db: Connection) -> Sequence[int]:
            if self.check:
                self.check(db)
            return event_table.insert(db, events, live=True)

        if len(events) <= _FEW:
            return await self._database.write(work, durable=False, inline=True)
        return await self._database.write(work, durable=False)

    async def _store_all(self) -> None:
        while True:
            entries = await self._written.get()
            await asyncio.sleep(_GATHER)  # one fsync is slower than many commits
            while not self._written.empty():
                entries += self._written.get_nowait()
            await self._retry(self._database.sync)
            for pending_event in entries:
                pending_event.mark_durable()
                self._queue.task_done()

    async def _retry(self, work: Callable[..., Awaitable[T]], *values: object) -> T:
        """Return the result of `work`, tried until it works: a full disk must not lose a line."""
        while True:
            try:
                result = await work(*values)
            except Unavailable as error:
                if not self._error:  # once, and then when it is over: a disk may be full for days
                    _log.error("log.write_failed", error=str(error), waiting=self._queue.qsize())
                self._error = str(error)
                await asyncio.sleep(_RETRY_PAUSE)
            else:
                self._recover()
                return result

    def _recover(self) -> None:
        """Note that the disk takes lines again."""
        if self._error:
            _log.info("log.written_again", waited=self._queue.qsize(), lost=self._dropped)
        self._error, self._dropped = "", 0


def _event(pending_event: PendingEvent) -> Event:
    """Return the event of a queued one, with the id of what it answers."""
    assert pending_event.event
    return (
        replace(pending_event.event, reply_to=pending_event.answers.id or None)
        if pending_event.answers
        else pending_event.event
    )
