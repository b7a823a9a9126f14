"""The append-only log of what was said: one writer in order, scoped reading.

Whoever reads names a `Scope`; `storage.chat_log.query` is the one place where it becomes SQL.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from storage.chat_log import deletion, statistics
from storage.chat_log import query as log_query
from storage.chat_log import writer as log_writer
from storage.chat_log.event import Event, Place, Scope
from storage.chat_log.opt_outs import rules
from storage.chat_log.pending_event import PendingEvent
from storage.chat_log.query import Query
from storage.chat_log.statistics import ChannelStats, DayStats, HeatMap, PersonStats, Stats
from storage.db.database import Database
from storage.passages.passages import PEOPLE, LineFilter, Passages, find_passages
from storage.search.models import SearchPage, SearchQuery
from storage.search.search import search

__all__ = ["ChannelStats", "ChatLog", "EventContext", "Query", "Stats"]


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
        self._log_writer = log_writer.LogWriter(database)

    def __repr__(self) -> str:
        return f"<ChatLog, {self._log_writer.queued} events queued>"

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database) -> AsyncIterator[ChatLog]:
        """A log that can be written; on leaving, all that was appended has been stored."""
        log = cls(database)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(log._log_writer.run())
            try:
                yield log
            finally:
                await log._log_writer.close(running)
                running.cancel()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Put an event in line to be stored and return at once; the future is its durable id."""
        return self.write(event).durable

    def write(self, event: Event | None, answers: PendingEvent | None = None) -> PendingEvent:
        """The same for who does not wait for the disk; `answers` is the entry of the question
        that an own line answers. None keeps nothing, and has its place in the line only."""
        pending_event = PendingEvent(event, answers)
        self._log_writer.enqueue(pending_event)
        return pending_event

    async def flush(self) -> None:
        """Wait until all that was appended is stored."""
        await self._log_writer.flush()

    async def add(self, events: Sequence[Event]) -> Sequence[int]:
        """Store many events in one transaction and return their ids: for imports, which should
        bring some thousands at a time, in order of time. Raises Unavailable."""
        return await log_writer.store(self._database, events)

    async def remove(self, ids: Sequence[int]) -> int:
        """Remove events from the log, the index and the counts, whatever their channel; how many
        there were. Words of theirs stay in the file until `scrub`. Raises Unavailable."""
        return await deletion.remove(self._database, ids)

    async def scrub(self) -> None:
        """Take the last traces of removed events out of the index. Raises Unavailable."""
        await deletion.scrub(self._database)

    async def find(self, query: Query, *, newest: bool = True) -> list[Event]:
        """The newest (or oldest) events that fit `query`, in order of time either way."""
        return await self._database.read(lambda db: log_query.find(db, query, newest=newest))

    async def for_model(self, *queries: Query) -> list[list[Event]]:
        """The newest events that fit each query, in order of time, as they are at one moment, and
        without what people said who have opted out: for a model to read."""

        def select(db: sqlite3.Connection) -> list[list[Event]]:
            hides = rules(db).hides
            found = log_query.newest(db, queries)
            return [[event for event in events if not hides(event)] for events in found]

        return await self._database.read_inline(select)

    async def shown_to_model(self, events: Sequence[Event]) -> list[Event]:
        """Those of `events` that are not of people who have opted out."""
        hides = (await self._database.read(rules)).hides
        return [event for event in events if not hides(event)]

    async def get(self, scope: Scope, event_id: int) -> Event | None:
        """One event, if it exists and may be seen."""
        query = Query(scope=scope, after_id=event_id - 1, before_id=event_id + 1, limit=1)
        found = await self.find(query)
        return found[0] if found else None

    async def context(
        self, scope: Scope, event_id: int, *, before: int, after: int
    ) -> EventContext | None:
        """An event with the events just before and after it on its channel, if it may be seen."""
        event = await self.get(scope, event_id)
        if event is None:
            return None
        query = Query(scope=Scope.from_places(Place(event.network, event.channel)))
        older = Query(scope=query.scope, before_id=event_id, limit=before)
        newer = Query(scope=query.scope, after_id=event_id, limit=after)
        return EventContext(await self.find(older), event, await self.find(newer, newest=False))

    async def search(self, search_query: SearchQuery) -> SearchPage:
        """A page of the lines that a search finds. Raises BadCursor."""
        return await self._database.read(lambda db: search(db, search_query))

    async def search_for_model(self, search_query: SearchQuery) -> SearchPage:
        """The same, without what people said who have opted out: for a model to read."""
        hides = (await self._database.read(rules)).hides
        page = await self.search(search_query)
        return replace(page, hits=tuple(hit for hit in page.hits if not hides(hit.event)))

    async def passages(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """The lines that likeliest answer a plain question, `within.limit` at most."""
        return await self._database.read(
            lambda db: find_passages(db, question, within, line_filter)
        )

    async def passages_for_model(
        self, question: str, within: Query, line_filter: LineFilter = PEOPLE
    ) -> Passages:
        """The same, without what people said who have opted out: for a model to read."""

        def select(db: sqlite3.Connection) -> Passages:
            hidden = replace(line_filter, hides=rules(db).hides)
            return find_passages(db, question, within, hidden)

        return await self._database.read(select)

    async def channels(self, scope: Scope) -> list[ChannelStats]:
        """The places in scope, the most recently active first."""
        return await self._database.read(lambda db: statistics.channels(db, scope))

    async def stats(self, query: Query, top: int = 5) -> Stats:
        """Counts of the spoken lines that fit `query`."""
        return await self._database.read(lambda db: statistics.stats(db, query, top))

    async def heat_map(self, query: Query) -> HeatMap:
        """When people speak on the channels of `query`, by weekday and hour in UTC, of all time."""
        return await self._database.read(lambda db: statistics.heat_map(db, query))

    async def days(self, query: Query, zone: tzinfo = UTC) -> list[DayStats]:
        """The days of `zone` with lines on the channels of `query` from `since` to `until`."""
        return await self._database.read(lambda db: statistics.days(db, query, zone))

    async def sparklines(
        self, scope: Scope, until: datetime, days: int = 30
    ) -> dict[Place, tuple[int, ...]]:
        """Lines of each of the last `days` before `until`, per place that was not silent."""
        return await self._database.read(lambda db: statistics.sparklines(db, scope, until, days))

    async def person(self, scope: Scope, nick: str) -> PersonStats | None:
        """What there is of a nick in scope, None if it never spoke there."""
        return await self._database.read(lambda db: statistics.person(db, scope, nick))
