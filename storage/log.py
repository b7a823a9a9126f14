"""The chat log: one writer, which keeps the order of arrival, and scoped reads.

Every read names a `Scope`; `storage.chat_log.event_table` is the only place that turns it into SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import TypeVar

import structlog

from storage.chat_log import arrivals, deletion, event_table, quotes, statistics
from storage.chat_log.arrivals import Arrivals, LogEnd
from storage.chat_log.event import VISIBILITY_TIMEOUT, Event, PendingEvent, Place, Scope
from storage.chat_log.event_table import Query
from storage.chat_log.opt_outs import rules
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.db.database import Connection, Database
from storage.db.errors import Rejected, Unavailable
from storage.passages.passages import (
    PEOPLE,
    LineFilter,
    Mentions,
    Passages,
    find_mentions,
    find_passages,
)
from storage.search.models import SearchPage, SearchQuery
from storage.search.search import search
from storage.search.vectors import find_near

__all__ = ["ChannelStats", "ChatLog", "EventContext", "Query", "Stats"]

_MAX_BATCH_EVENTS = 2_000  # events that are written in one transaction
_MAX_INLINE_EVENTS = 10  # events that are written inline; more go to a thread
_YIELDS_PER_BATCH = 2  # iterations of the event loop before a batch is written, see `_batch`
_GATHERING_TIME = 0.005  # seconds for which commits gather before an fsync, so that one serves all
_RETRY_PAUSE = 1.0  # seconds between two attempts at a write that failed
_CLOSING_TIMEOUT = 3.0  # seconds that closing waits for the last batches

MAX_QUEUED_EVENTS = 20_000
"""Maximum number of events that wait in memory while writing fails, about 20 MB."""

T = TypeVar("T")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EventContext:
    """An event and its neighbours on the channel, both lists in chronological order."""

    before: Sequence[Event]
    event: Event
    after: Sequence[Event]


class ChatLog:
    """The chat log in a database.

    Only a log from `open` has a running writer, which `append`, `write` and `flush` need; a plain
    `ChatLog(database)` does everything else.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log_writer = LogWriter(database)

    def __repr__(self) -> str:
        return f"<ChatLog, {self._log_writer.queued} events queued>"

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database) -> AsyncIterator[ChatLog]:
        """Open a log with a running writer; on leaving, wait until the queue is stored, or for
        `_CLOSING_TIMEOUT` seconds."""
        log = cls(database)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(log._log_writer.run())
            try:
                yield log
            finally:
                await log._log_writer.close(running)
                running.cancel()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Queue an event; the future resolves to its id once the event is durable, and is cancelled
        if the event is dropped."""
        return self.write(event).durable

    def write(self, event: Event | None, answers: PendingEvent | None = None) -> PendingEvent:
        """Queue an event and return at once, with a handle for awaiting its storage.

        `answers` is the pending event of the question that a line of our own answers. With None as
        the `event` nothing is stored: the handle only marks a position in the queue.
        """
        pending_event = PendingEvent(event, answers)
        self._log_writer.enqueue(pending_event)
        return pending_event

    def guard(self, check: Callable[[Connection], None]) -> None:
        """Run `check` at the beginning of each transaction that writes queued events.

        It is for fencing: an exception other than Unavailable, such as LeaseLost, rolls the
        transaction back and ends the writer.
        """
        self._log_writer.check = check

    async def flush(self) -> None:
        """Wait until all queued events are durable. Raises Unavailable while writing fails."""
        await self._log_writer.flush()

    @property
    def trouble(self) -> str:
        """Why nothing can be written at the moment, as text for people; "" when all is well."""
        return self._log_writer.trouble

    async def add(self, events: Sequence[Event]) -> Sequence[int]:
        """Store many events in one transaction and return their ids. It is meant for imports, in
        chronological batches of a few thousand. Raises Unavailable."""
        return await self._database.write(lambda db: event_table.insert(db, events))

    async def add_quotes(self, answer: int, lines: Collection[int]) -> None:
        """Record that our answer to the event `answer` repeats `lines`, so that it is erased with
        any of them. Raises Unavailable."""
        await self._database.write(
            lambda db: quotes.add(db, answer, lines), durable=False, inline=True
        )

    async def quoted_lines(self, lines: Collection[int]) -> frozenset[int]:
        """Return the ids of those `lines` that people have said and, for those of our own, of the
        lines that they repeat. Raises Unavailable."""
        return await self._database.read(lambda db: quotes.sources(db, lines), inline=True)

    async def answers_quoting(self, lines: Collection[int]) -> frozenset[int]:
        """Return the ids of our lines that repeat any of `lines`, and of the questions that such
        lines answer. Raises Unavailable."""
        return await self._database.read(lambda db: quotes.answers(db, lines))

    async def remove(self, ids: Sequence[int]) -> int:
        """Remove events, of any channel, from the log, the index and the counters; return how many
        there were. Their words may stay in the file until `scrub`. Raises Unavailable."""
        return await deletion.remove(self._database, ids)

    async def scrub(self) -> None:
        """Remove the remaining words of removed events from the index. Raises Unavailable."""
        await deletion.scrub(self._database)

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """Return the newest (or oldest) events that match, in chronological order either way."""
        return await self._database.read(lambda db: event_table.find(db, query, newest=newest))

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """Return the newest events that match each query, in chronological order, for a model.

        All are read from one snapshot. Events by or about people who have opted out are left out
        after the limit is applied, so there may be fewer than `limit`.
        """

        def select(db: Connection) -> list[list[Event]]:
            hides = rules(db).hides
            found = event_table.newest(db, queries)
            return [[event for event in events if not hides(event)] for events in found]

        return await self._database.read(select, inline=True)

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Return those `events` that are neither by nor about people who have opted out."""
        hides = (await self._database.read(rules)).hides
        return [event for event in events if not hides(event)]

    async def arrivals(self, query: Query, position: int) -> Arrivals:
        """Return the events that match `query` and arrived after `position`, in order of arrival,
        whatever their times."""
        return await self._database.read(lambda db: arrivals.after(db, query, position))

    async def arrival_of(self, event_id: int) -> int | None:
        """Return the arrival position of an event; None if it arrived too long ago, or was imported
        as history."""
        return await self._database.read(lambda db: arrivals.position_of(db, event_id))

    async def end(self) -> LogEnd:
        """Return the current end of the log."""
        return await self._database.read(arrivals.end)

    async def newest_id_in_channels(self, query: Query) -> int:
        """Return the id of the event that arrived last on the channels of `query`, whatever else it
        asks for; 0 when there is none."""
        return await self._database.read(lambda db: arrivals.newest_id_in_channels(db, query))

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """Return an event, or None if it does not exist or is outside `scope`."""
        query = Query(scope=scope, after_id=event_id - 1, before_id=event_id + 1, limit=1)
        found = await self.find(query)
        return found[0] if found else None

    async def context(
        self, scope: Scope, event_id: int, *, before: int, after: int
    ) -> EventContext | None:
        """Return an event with at most `before` and `after` neighbours on its channel; None if it
        does not exist or is outside `scope`."""
        event = await self.get(scope, event_id)
        if event is None:
            return None
        # The event was found within `scope`, so its place is within `scope` too.
        query = Query(scope=Scope.from_places(Place(event.network, event.channel)))
        older = Query(scope=query.scope, before_id=event_id, limit=before)
        newer = Query(scope=query.scope, after_id=event_id, limit=after)
        return EventContext(await self.find(older), event, await self.find(newer, newest=False))

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """Return one page of search results. Raises BadCursor."""
        return await self._database.read(lambda db: search(db, search_query))

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """Return one page of search results, without lines of people who have opted out."""
        hides = (await self._database.read(rules)).hides
        page = await self.search(search_query)
        return replace(page, hits=tuple(hit for hit in page.hits if not hides(hit.event)))

    async def passages_for_model(
        self,
        question: str,
        within: Query,
        line_filter: LineFilter = PEOPLE,
        vector: Sequence[float] | None = None,
    ) -> Passages:
        """Return the lines most likely to answer a question in plain words, best first,
        `within.limit` at most, without lines of people who have opted out. `vector` is the
        question's embedding."""

        def select(db: Connection) -> Passages:
            hidden = line_filter.hiding(rules(db).hides)
            return find_passages(db, question, within, hidden, vector)

        return await self._database.read(select)

    async def mentions_for_model(
        self, text: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Mentions:
        """Return and count the lines with any word of a text, without those of people who have
        opted out."""

        def select(db: Connection) -> Mentions:
            hidden = line_filter.hiding(rules(db).hides)
            return find_mentions(db, text, within, hidden)

        return await self._database.read(select)

    async def near_for_model(self, vector: Sequence[float], within: Query) -> SearchPage:
        """Return the newer lines of people that are nearest in meaning to a text with this
        embedding, best first, without those of people who have opted out."""
        return await self._database.read(lambda db: find_near(db, vector, within))

    async def channels(self, scope: Scope) -> list[ChannelStats]:
        """Return the places in scope, the most recently active first."""
        return await self._database.read(lambda db: statistics.channels(db, scope))

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Return totals of the spoken lines that match, and the `top` most talkative nicks."""
        return await self._database.read(lambda db: statistics.stats(db, query, top))

    async def heat_map(self, query: Query) -> HeatMap:
        """Count all lines on the channels of `query` by weekday and hour in UTC."""
        return await self._database.read(lambda db: statistics.heat_map(db, query))

    async def days(self, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
        """Return the days of `zone` with lines on the channels of `query` from `since` to
        `until`."""
        return await self._database.read(lambda db: statistics.days(db, query, zone))

    async def sparklines(
        self, scope: Scope, until: datetime, days: int = 30
    ) -> dict[Place, tuple[int, ...]]:
        """Count the lines of each of the last `days` before `until`, per place; silent places are
        left out."""
        return await self._database.read(lambda db: statistics.sparklines(db, scope, until, days))

    async def person(self, scope: Scope, nick: str) -> PersonStats | None:
        """Return the statistics of a nick in scope, None if it never spoke there."""
        return await self._database.read(lambda db: statistics.person(db, scope, nick))


class LogWriter:
    """The writer of the log: one task commits queued events, another fsyncs the commits.

    Events are stored in the order of the queue. Each becomes visible to readers at its commit and
    durable at the next fsync, so that live readers do not wait for the disk, and one fsync serves
    all commits since the last. `check` may refuse a transaction by raising.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue()
        self._written: asyncio.Queue[list[PendingEvent]] = asyncio.Queue()
        self._ahead: PendingEvent | None = None
        self._last: PendingEvent | None = None
        self._newest = 0
        self._waiting = 0
        # By step: commits may succeed while every fsync fails, and must not clear its error.
        self._errors: dict[str, str] = {}
        self._dropped = 0
        self.check: Callable[[Connection], None] | None = None

    @property
    def trouble(self) -> str:
        """Why nothing can be written, and how many lines wait; "" when all is well."""
        if not self._errors:
            return ""
        lost = f", {self._dropped} more are lost" if self._dropped else ""
        return f"{self._error}; {self.queued} lines wait in memory{lost}"

    @property
    def queued(self) -> int:
        """The number of events that are not durable yet, those being written included."""
        return self._waiting

    @property
    def _error(self) -> str:
        return next(iter(self._errors.values()), "")

    def enqueue(self, pending_event: PendingEvent) -> None:
        """Queue an event and return at once. While writing fails, at most `MAX_QUEUED_EVENTS`
        events wait for their commit; later ones are dropped, because the older ones show what led
        to the failure."""
        # Not `queued`: lines that only lack their fsync can be read, and outlive this process.
        if self._errors and self._queue.qsize() >= MAX_QUEUED_EVENTS:
            if not self._dropped:
                _log.error("log.dropping", waiting=self.queued)
            self._dropped += 1
            pending_event.drop()
            return
        self._waiting += pending_event.event is not None
        pending_event.after(self._last)
        self._last = pending_event
        self._queue.put_nowait(pending_event)

    async def run(self) -> None:
        """Store queued events until cancelled.

        While one batch is written the next one gathers, so batches grow under load.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._store_all())

    async def flush(self) -> None:
        """Wait until all queued events are durable. Raises Unavailable while writing fails."""
        stored = asyncio.ensure_future(self._queue.join())
        try:
            while not stored.done():
                await asyncio.wait({stored}, timeout=VISIBILITY_TIMEOUT)
                if not stored.done() and self._errors:
                    raise Unavailable(self._error)
        finally:
            stored.cancel()

    async def close(self, running: asyncio.Task[None]) -> None:
        """Wait until the queue is stored, until `running` (the task of `run`) has failed, or for
        `_CLOSING_TIMEOUT` seconds; log how many events are lost."""
        drained = asyncio.ensure_future(self._queue.join())
        await asyncio.wait(
            {drained, running}, timeout=_CLOSING_TIMEOUT, return_when="FIRST_COMPLETED"
        )
        if not drained.done():
            drained.cancel()
            _log.error("log.lines_lost", lines=self.queued)

    async def _write_all(self) -> None:
        while True:
            batch = await self._batch()
            events = [
                replace(each.event, reply_to=each.answers.id or None)
                if each.answers
                else each.event
                for each in batch
                if each.event
            ]
            ids = iter(await self._write_valid(events))
            for pending_event in batch:
                # A position without an event takes the id of the last one stored as its bound.
                event_id = next(ids) if pending_event.event else 0
                self._newest = event_id or self._newest
                pending_event.mark_settled(event_id, self._newest)
                if pending_event.event and not event_id:
                    pending_event.durable.cancel()
            self._written.put_nowait(batch)

    async def _batch(self) -> list[PendingEvent]:
        """Return the next batch of the queue.

        It ends before an answer to a question of the same batch: `reply_to` needs the question's
        id, which is known only once the question is written.
        """
        batch = [self._ahead or await self._queue.get()]
        self._ahead = None
        # Let the other lines of this iteration of the event loop join the batch, and let tasks
        # that the same line woke (a question's) run before an inline write blocks the loop.
        for _ in range(_YIELDS_PER_BATCH):
            await asyncio.sleep(0)
        while len(batch) < _MAX_BATCH_EVENTS and not self._queue.empty():
            pending_event = self._queue.get_nowait()
            if pending_event.answers and not pending_event.answers.is_settled:
                self._ahead = pending_event
                break
            batch.append(pending_event)
        return batch

    async def _write_valid(self, events: Sequence[Event]) -> Sequence[int]:
        """Write events and return their ids, 0 for one that the database rejects.

        Retrying could never store such an event, and would hold up all later ones. The batch is
        halved until it is alone.
        """
        if not events:
            return []
        try:
            return await self._retry("write", self._write, events)
        except Rejected as error:
            if len(events) == 1:
                _log.error("log.line_rejected", type=events[0].type.value, error=str(error))
                return [0]
        half = len(events) // 2
        older = await self._write_valid(events[:half])
        return [*older, *await self._write_valid(events[half:])]

    async def _write(self, events: Sequence[Event]) -> Sequence[int]:
        def work(db: Connection) -> Sequence[int]:
            if self.check:
                self.check(db)
            return event_table.insert(db, events, live=True)

        # Neither write is durable: `_store_all` fsyncs, so that commits need not wait for the disk.
        if len(events) <= _MAX_INLINE_EVENTS:
            return await self._database.write(work, durable=False, inline=True)
        return await self._database.write(work, durable=False)

    async def _store_all(self) -> None:
        while True:
            entries = await self._written.get()
            await asyncio.sleep(_GATHERING_TIME)  # one fsync takes longer than many commits
            while not self._written.empty():
                entries += self._written.get_nowait()
            await self._retry("sync", self._database.sync)
            # `task_done` only after the fsync: `flush` and `close` join the queue, and promise it.
            for pending_event in entries:
                self._waiting -= pending_event.event is not None
                pending_event.mark_durable()
                self._queue.task_done()

    async def _retry(self, step: str, work: Callable[..., Awaitable[T]], *values: object) -> T:
        """Return the result of `work`, retried until it succeeds: a full disk must not lose a line.

        Raises Rejected, which retrying cannot mend.
        """
        while True:
            try:
                result = await work(*values)
            except Rejected:
                self._recover(step)  # the database can be reached
                raise
            except Unavailable as error:
                if not self._errors:  # only the first failure: a disk may be full for days
                    _log.error("log.write_failed", error=str(error), waiting=self.queued)
                self._errors[step] = str(error)
                await asyncio.sleep(_RETRY_PAUSE)
            else:
                self._recover(step)
                return result

    def _recover(self, step: str) -> None:
        """Clear the error of a step, and log once that both steps work again."""
        if self._errors.pop(step, None) and not self._errors:
            _log.info("log.written_again", waited=self.queued, lost=self._dropped)
            self._dropped = 0
