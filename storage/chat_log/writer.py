"""The one who writes the log: in order, in groups, and into the index and the counts as well."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog

from storage.chat_log import counters, event_ids, fts_index
from storage.chat_log import rows as event_row
from storage.chat_log.event import Event, fold_name
from storage.chat_log.pending_event import PendingEvent
from storage.db.database import Database
from storage.db.errors import Unavailable

_BATCH = 2_000
_FEW = 10  # events that are written in place
_TURNS = 2  # of the event loop by which a question is ahead of its line: nobody waits for that
_GATHER = 0.01  # seconds for which lines gather that reach the disk together
_RETRY = 1.0  # seconds until what the disk did not take is tried again
_LAST = 3.0  # seconds that the last batches have to be written
_CHANNEL = "INSERT OR IGNORE INTO channels (network, name, private) VALUES (?, ?, ?)"

T = TypeVar("T")

_log = structlog.get_logger()


class LogWriter:
    """Stores the entries that others put in line.

    First everybody can read them, then they are on the disk: who only wants to read on does not
    wait for the slower of the two, and what is written meanwhile reaches the disk together.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: asyncio.Queue[PendingEvent] = asyncio.Queue()
        self._written: asyncio.Queue[list[PendingEvent]] = asyncio.Queue()
        self._ahead: PendingEvent | None = None
        self._last: PendingEvent | None = None
        self._newest = 0

    @property
    def queued(self) -> int:
        """How many events wait to be written."""
        return self._queue.qsize()

    def enqueue(self, pending_event: PendingEvent) -> None:
        """Put an entry in line and return at once."""
        pending_event.after(self._last)
        self._last = pending_event
        self._queue.put_nowait(pending_event)

    async def run(self) -> None:
        """Store what is in line: while one batch is being written the next one gathers, so that
        batches grow under load."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._store_all())

    async def flush(self) -> None:
        """Wait until all that was put in line is stored."""
        await self._queue.join()

    async def close(self, running: asyncio.Task[None]) -> None:
        """Let `run` finish, unless it has failed or cannot write."""
        drained = asyncio.ensure_future(self._queue.join())
        await asyncio.wait({drained, running}, timeout=_LAST, return_when="FIRST_COMPLETED")
        if not drained.done():
            drained.cancel()
            _log.error("log.lines_lost", lines=self._queue.qsize())

    async def _write_all(self) -> None:
        while True:
            batch = await self._batch()
            if events := [_event(pending_event) for pending_event in batch if pending_event.event]:
                ids = iter(await self._patiently(self._write, events))
            for pending_event in batch:
                event_id = next(ids) if pending_event.event else 0
                self._newest = event_id or self._newest
                pending_event.mark_visible(event_id, self._newest)
            self._written.put_nowait(batch)

    async def _batch(self) -> list[PendingEvent]:
        """What is in line, up to an answer whose question has no id before it is written."""
        batch = [self._ahead or await self._queue.get()]
        self._ahead = None
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        while len(batch) < _BATCH and not self._queue.empty():
            pending_event = self._queue.get_nowait()
            if pending_event.answers and not pending_event.answers.is_visible:
                self._ahead = pending_event
                break
            batch.append(pending_event)
        return batch

    async def _write(self, events: Sequence[Event]) -> Sequence[int]:
        def work(db: sqlite3.Connection) -> Sequence[int]:
            return insert(db, events, event_ids.CLOCK)

        if len(events) <= _FEW:
            return await self._database.write_inline(work)
        return await self._database.write(work, lasting=False)

    async def _store_all(self) -> None:
        while True:
            entries = await self._written.get()
            await asyncio.sleep(_GATHER)
            while not self._written.empty():
                entries += self._written.get_nowait()
            await self._patiently(self._database.sync)
            for pending_event in entries:
                pending_event.mark_durable()
                self._queue.task_done()

    async def _patiently(self, work: Callable[..., Awaitable[T]], *values: object) -> T:
        """What `work` returns, however often it takes: a full disk must not lose a line."""
        while True:
            try:
                return await work(*values)
            except Unavailable as error:
                _log.error("log.write_failed", error=str(error), waiting=self._queue.qsize())
                await asyncio.sleep(_RETRY)


def _event(pending_event: PendingEvent) -> Event:
    """The event of an entry, with the id of what it answers."""
    assert pending_event.event
    return (
        replace(pending_event.event, reply_to=pending_event.answers.id or None)
        if pending_event.answers
        else pending_event.event
    )


async def store(database: Database, events: Sequence[Event]) -> Sequence[int]:
    """Store events in one transaction; their ids, in the same order. Raises Unavailable."""
    return await database.write(lambda db: insert(db, events))


def insert(
    connection: sqlite3.Connection, events: Sequence[Event], late: int = event_ids.LATE
) -> Sequence[int]:
    """Store events inside the transaction of `connection`; their ids, in the same order. Those
    that are `late` by more milliseconds are history."""
    events = [event_row.storable(event) for event in events]
    channels, private = _channels(connection, events)
    times = [event_row.micros(event) for event in events]
    placed = event_ids.allocate_ids(connection, times, late)
    rows = [
        event_row.values(event, event_id, channels[event.network, fold_name(event.channel)], time)
        for event, event_id, time in zip(events, placed.ids, times, strict=True)
    ]
    connection.executemany(event_row.INSERT, rows)
    fts_index.add(connection, rows, placed.drift)
    counters.add(connection, rows, private)
    return placed.ids


def _channels(
    connection: sqlite3.Connection, events: Sequence[Event]
) -> tuple[dict[tuple[str, str], int], set[int]]:
    """The ids of all channels, those of `events` made if need be, and which are private."""
    places = {(event.network, event.channel, event.private) for event in events}
    connection.executemany(_CHANNEL, places)
    rows = connection.execute("SELECT id, network, name, private FROM channels").fetchall()
    ids = {(row[1], fold_name(row[2])): row[0] for row in rows}
    return ids, {row[0] for row in rows if row[3]}
