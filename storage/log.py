"""The chat log: one writer, which keeps the order of arrival, and scoped reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

import structlog

from storage.chat_log import deletion, event_table
from storage.chat_log.event import EVERYTHING, VISIBILITY_TIMEOUT, Event, PendingEvent, Place, Scope
from storage.chat_log.event_table import Query
from storage.chat_log.journal import Journal
from storage.chat_log.opt_outs import rules
from storage.db.database import Connection, Database
from storage.db.errors import Rejected, StorageError, Unavailable
from storage.queues.reports import Reports
from storage.search.models import SearchPage, SearchQuery
from storage.search.search import search

__all__ = ["ChatLog", "EventContext", "Query"]

_MAX_BATCH_EVENTS = 2_000  # events that are written in one transaction
_YIELDS_PER_BATCH = 2  # iterations of the event loop before a batch is written
_GATHERING_TIME = 0.005  # seconds for which commits gather before an fsync, so that one serves all
_RECOVERY_INTERVAL = 5.0  # seconds between two looks for the journals of dead processes
_RETRY_PAUSE = 1.0  # seconds between two attempts at a write that failed
_CLOSING_TIMEOUT = 3.0  # seconds that closing waits for the last batches
_EVENTS_PER_READ = 1_000  # events that are in memory at once
_MAX_COMPARED = 100_000  # lines of the log to compare with

CLOCK_SKEW = timedelta(seconds=2)
"""Tolerance at the beginning of the gap, for a server clock that is behind ours."""

OWN_CLOCK_SKEW = timedelta(seconds=30)
"""Tolerance for our own lines, which were logged with the time of our clock."""

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

    Only a log from `open` stores what `append` and `write` queue; a plain `ChatLog(database)` does
    everything else. Reads are functions of a connection, such as those of
    `storage.chat_log.statistics` and `storage.passages.passages`, given to `read`. The methods for
    models leave out people who have opted out.

    One task commits queued events, another fsyncs the commits. Events are stored in the order of
    the queue. Each becomes visible to readers at its commit and durable at the next fsync, so that
    live readers do not wait for the disk, and one fsync serves all commits since the last.
    """

    def __init__(self, database: Database, journal: Journal | None = None) -> None:
        self.database, self.read, self._journal = database, database.read, journal
        self.check: Callable[[Connection], None] | None = None
        """Runs at the beginning of each transaction that writes queued events. It is for fencing:
        an exception other than Unavailable, such as LeaseLost, rolls the transaction back and ends
        the writer."""
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue()
        self._written: asyncio.Queue[list[PendingEvent]] = asyncio.Queue()
        self._ahead: PendingEvent | None = None  # out of the queue, and first in the next batch
        self._last: PendingEvent | None = None  # that was queued
        self._newest = 0  # id that was written
        self.waiting = 0
        """The number of events that are not durable yet, those being written included."""
        # By step: commits may succeed while every fsync fails, and must not clear its error.
        self._errors: dict[str, Unavailable] = {}
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<ChatLog, {self.waiting} events queued>"

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: Database, journal: Journal | None = None
    ) -> AsyncIterator[ChatLog]:
        """Open a log that stores queued events; on leaving, wait at most `_CLOSING_TIMEOUT` seconds
        for it. What is not stored then is in the `journal`, which has to be open."""
        log = cls(database, journal)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(log._write_all()), tasks.create_task(log._store_all())]
            try:
                yield log
            finally:
                drained = asyncio.ensure_future(log._queue.join())
                await asyncio.wait(
                    {drained, *running}, timeout=_CLOSING_TIMEOUT, return_when="FIRST_COMPLETED"
                )
                if not drained.done():
                    ended = [each for each in running if each.done() and not each.cancelled()]
                    if any(isinstance(each.exception(), StorageError) for each in ended):
                        _log.info("log.fenced", lines=log.waiting)  # a successor logs them
                    elif journal:
                        _log.warning("log.lines_kept", lines=log.waiting)  # for the next start
                    else:
                        _log.error("log.lines_lost", lines=log.waiting)
                for task in (drained, *running):
                    task.cancel()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Queue an event; the future resolves to its id once it is durable, or is cancelled."""
        return self.write(event).durable

    def write(self, event: Event | None, answers: PendingEvent | None = None) -> PendingEvent:
        """Queue an event and return at once, with a handle for awaiting its storage.

        `answers` is the pending event of the question that a line of our own answers. With None as
        the `event` nothing is stored: the handle only marks a position in the queue. While writing
        fails, at most `MAX_QUEUED_EVENTS` events wait for their commit; later ones are dropped,
        because the older ones show what led to the failure.
        """
        pending_event = PendingEvent(event, answers)
        # Not `waiting`: lines that only lack their fsync can be read, and outlive this process.
        if self._errors and self._queue.qsize() >= MAX_QUEUED_EVENTS:
            if not self._dropped:
                _log.error("log.dropping", waiting=self.waiting)
            self._dropped += 1
            pending_event.mark_settled(0)
            pending_event.durable.cancel()
            return pending_event
        if pending_event.event:
            self.waiting += 1
            if self._journal:
                self._journal.add(pending_event.event)
        pending_event.before = self._last
        self._last = pending_event
        self._queue.put_nowait(pending_event)
        return pending_event

    @property
    def trouble(self) -> str:
        """Why nothing can be written at the moment and how many lines wait, or ""."""
        if not self._errors:
            return ""
        lost = f", {self._dropped} more are lost" if self._dropped else ""
        error = next(iter(self._errors.values()))
        return f"{error}; {self.waiting} lines wait in memory{lost}"

    async def flush(self) -> None:
        """Wait until all queued events are durable. Raises Unavailable while writing fails."""
        stored = asyncio.ensure_future(self._queue.join())
        try:
            while not stored.done():
                await asyncio.wait({stored}, timeout=VISIBILITY_TIMEOUT)
                if not stored.done() and self._errors:
                    raise next(iter(self._errors.values()))
        finally:
            stored.cancel()

    async def recover(self, keeps: Callable[[Event], bool]) -> None:
        """Store what dead processes have left in journals, if it is not in the log and may be kept.
        Raises Unavailable and OSError."""
        if self._journal is None:
            return
        with self._journal.left_behind() as events:
            known = await find_logged(self, events)
            missing = [each for number, each in enumerate(events) if number not in known]
            for event in filter(keeps, missing):
                self.write(event)
            await self.flush()  # only now others find them in the log, and need not write them
        if missing:
            _log.info("log.recovered", lines=len(missing))

    async def keep_recovering(self, keeps: Callable[[Event], bool]) -> None:
        """Do so until cancelled, for processes that end or are fenced beside this one."""
        while True:
            await asyncio.sleep(_RECOVERY_INTERVAL)
            with suppress(OSError, StorageError):
                await self.recover(keeps)

    async def add(self, events: Sequence[Event]) -> Sequence[int]:
        """Store many events in one transaction and return their ids. It is meant for imports, in
        chronological batches of a few thousand. Raises Unavailable."""
        return await self.database.write(lambda db: event_table.insert(db, events))

    async def scrub(self) -> None:
        """Overwrite what the index still holds of events that were removed, and take out of reports
        what depended on them. Raises Unavailable."""
        await deletion.scrub(self.database)
        await Reports(self.database).prune()

    async def add_quotes(self, question: int, lines: Collection[int]) -> None:
        """Record that our answer to the event `question` repeats `lines`. Raises Unavailable."""
        work = partial(event_table.add_quotes, answer=question, lines=lines)
        await self.database.write(work, durable=False)

    async def quoted_lines(self, lines: Collection[int]) -> frozenset[int]:
        """Return the ids of those `lines` that people have said and, for those of our own, of the
        lines that they repeat. Raises Unavailable."""
        return await self.read(event_table.quoted_lines, lines)

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """Return the newest (or oldest) events that match, in chronological order either way."""
        return await self.read(event_table.find, query, newest=newest)

    async def pieces(self, query: Query) -> AsyncIterator[list[Event]]:
        """Yield all events that match, oldest first, in pieces, so that memory is bounded."""
        more = True
        while more:
            events = await self.find(replace(query, limit=_EVENTS_PER_READ), newest=False)
            if events:
                yield events
                query = replace(query, after_id=events[-1].id)
            more = len(events) == _EVENTS_PER_READ

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """Return the newest events that match each query, in chronological order, from one
        snapshot. Those by or about people who have opted out are left out after the limit is
        applied."""

        def select(db: Connection) -> list[list[Event]]:
            return [_leave_out(db, event_table.find(db, query, newest=True)) for query in queries]

        return await self.read(select)

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Return those `events` that are not by, about or to people who have opted out."""
        return await self.read(_leave_out, events)

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
        return await self.read(search, search_query)

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """Return one page of search results, without lines of people who have opted out."""
        page = await self.search(search_query)
        shown = await self.shown_to_model([hit.event for hit in page.hits])
        return replace(page, hits=tuple(hit for hit in page.hits if hit.event in shown))

    async def _write_all(self) -> None:
        while True:
            # A batch ends before an answer to a question of the same batch: `reply_to` needs the
            # question's id, which is known only once the question is written.
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

    async def _write_valid(self, events: Sequence[Event]) -> Sequence[int]:
        """Write events and return their ids, 0 for one that the database rejects, which retrying
        would not change: to find it the batch is halved until it is alone."""
        if not events:
            return []

        def insert(db: Connection) -> Sequence[int]:
            if self.check:
                self.check(db)
            return event_table.insert(db, events, live=True)

        try:
            # Not durable: `_store_all` fsyncs, so that commits need not wait for the disk.
            return await self._retry("write", partial(self.database.write, insert, durable=False))
        except Rejected as error:
            if len(events) == 1:
                _log.error("log.line_rejected", type=events[0].type.value, error=str(error))
                return [0]
        half = len(events) // 2
        older = await self._write_valid(events[:half])
        return [*older, *await self._write_valid(events[half:])]

    async def _store_all(self) -> None:
        while True:
            entries = await self._written.get()
            await asyncio.sleep(_GATHERING_TIME)  # one fsync takes longer than many commits
            while not self._written.empty():
                entries += self._written.get_nowait()
            await self._retry("sync", self.database.sync)
            # `task_done` only after the fsync: `flush` and `close` join the queue, and promise it.
            for pending_event in entries:
                self.waiting -= pending_event.event is not None
                pending_event.mark_durable()
                self._queue.task_done()
            if self._journal and not self.waiting:
                self._journal.clear()

    async def _retry(self, step: str, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, retried until it succeeds or the database rejects it. Raises
        Rejected."""
        while True:
            try:
                result = await work()
            except Rejected:
                self._recover(step)  # the database can be reached
                raise
            except Unavailable as error:
                if not self._errors:  # only the first failure: a disk may be full for days
                    _log.error("log.write_failed", error=str(error), waiting=self.waiting)
                self._errors[step] = error
                await asyncio.sleep(_RETRY_PAUSE)
            else:
                self._recover(step)
                return result

    def _recover(self, step: str) -> None:
        """Clear the error of a step, and log once that both steps work again."""
        if self._errors.pop(step, None) and not self._errors:
            _log.info("log.written_again", waited=self.waiting, lost=self._dropped)
            self._dropped = 0


async def find_logged(log: ChatLog, records: Sequence[Event]) -> Mapping[int, Event]:
    """Return the logged events that match `records`, by index in `records`.

    They match if they have the same place, sender, target, type and text, and the same message id
    or, without ids, times that differ by no more than the clocks may. Each logged event matches at
    most one record, so repeated lines are counted correctly. Raises Unavailable.
    """
    if not records:
        return {}
    query = Query(
        scope=Scope.from_places(*{Place(each.network, each.channel) for each in records}),
        since=min(each.time for each in records) - OWN_CLOCK_SKEW,
        until=max(each.time for each in records) + OWN_CLOCK_SKEW,
        limit=_MAX_COMPARED,
    )

    def is_same(record: Event, logged: Event) -> bool:
        if record.msgid and logged.msgid:
            return record.msgid == logged.msgid
        return abs(record.time - logged.time) <= (OWN_CLOCK_SKEW if logged.own else CLOCK_SKEW)

    known: dict[tuple[str, ...], list[Event]] = {}
    for event in await log.find(query):
        known.setdefault(matching_key(event), []).append(event)
    found = {}
    for number, record in enumerate(records):
        candidates = known.get(matching_key(record), [])
        if same := next((each for each in candidates if is_same(record, each)), None):
            candidates.remove(same)
            found[number] = same
    return found


def matching_key(event: Event) -> tuple[str, ...]:
    """Return what two records of one event have in common, besides about the same time."""
    place = (event.network, event.channel.lower())
    # A message of several lines is logged as one event each; its first line stands for it.
    text = event.text.partition("\n")[0]
    return (*place, event.type.value, event.nick.lower(), event.target.lower(), text)


def _leave_out(db: Connection, events: Sequence[Event]) -> list[Event]:
    """Return the events without those by, about or in answer to people who have opted out."""
    opted_out = rules(db)
    if not opted_out.nicks:
        return list(events)
    asked = frozenset(event.reply_to for event in events if event.own and event.reply_to)
    query = Query(scope=EVERYTHING, ids=asked, limit=len(asked))
    questions = event_table.find(db, query, newest=True) if asked else []
    theirs = {event.id for event in questions if opted_out.hides(event)}
    return [e for e in events if not (opted_out.hides(e) or (e.own and e.reply_to in theirs))]
