"""The one who writes the log: in order, in groups, and into the index and the counts as well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiosqlite
import structlog

from storage import counts, event_ids, event_row, text_index
from storage.database import Database
from storage.errors import Unavailable
from storage.event import Event, folded

_BATCH = 2_000
_RETRY = 1.0  # seconds until a batch that could not be written is tried again
_LAST = 3.0  # seconds that the last batches have to be written
_CHANNEL = "INSERT OR IGNORE INTO channels (network, name, private) VALUES (?, ?, ?)"

_log = structlog.get_logger()


class Writer:
    """Stores events that others put in line."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: asyncio.Queue[tuple[Event, asyncio.Future[int]]] = asyncio.Queue()

    def append(self, event: Event) -> asyncio.Future[int]:
        """Put an event in line and return at once; the future is its durable id."""
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((event, stored))
        return stored

    async def run(self) -> None:
        """Store what is in line: while one batch is being committed the next one gathers, so
        that batches grow under load."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            ids = await self._stored([event for event, _ in batch])
            for (_, stored), event_id in zip(batch, ids, strict=True):
                if not stored.cancelled():
                    stored.set_result(event_id)
                self._queue.task_done()

    async def settle(self) -> None:
        """Wait until all that was put in line is stored."""
        await self._queue.join()

    async def drain(self, running: asyncio.Task[None]) -> None:
        """Let `run` finish, unless it has failed or cannot write."""
        drained = asyncio.ensure_future(self._queue.join())
        await asyncio.wait({drained, running}, timeout=_LAST, return_when="FIRST_COMPLETED")
        if not drained.done():
            drained.cancel()
            _log.error("log.lines_lost", lines=self._queue.qsize())

    async def _stored(self, events: Sequence[Event]) -> Sequence[int]:
        """Store a batch, however often it takes: a full disk must not lose a line."""
        while True:
            try:
                return await store(self._database, events)
            except Unavailable as error:
                _log.error("log.write_failed", error=str(error), waiting=len(events))
                await asyncio.sleep(_RETRY)


async def store(database: Database, events: Sequence[Event]) -> Sequence[int]:
    """Store events in one transaction; their ids, in the same order. Raises Unavailable."""
    async with database.transaction() as connection:
        return await insert(connection, events)


async def insert(connection: aiosqlite.Connection, events: Sequence[Event]) -> Sequence[int]:
    """Store events inside the transaction of `connection`; their ids, in the same order."""
    events = [event_row.storable(event) for event in events]
    channels, private = await _channels(connection, events)
    times = [event_row.micros(event) for event in events]
    placed = await event_ids.place(connection, times)
    rows = [
        event_row.values(event, event_id, channels[event.network, folded(event.channel)], time)
        for event, event_id, time in zip(events, placed.ids, times, strict=True)
    ]
    await connection.executemany(event_row.INSERT, rows)
    await text_index.add(connection, rows, placed.drift)
    await counts.add(connection, rows, private)
    return placed.ids


async def _channels(
    connection: aiosqlite.Connection, events: Sequence[Event]
) -> tuple[dict[tuple[str, str], int], set[int]]:
    """The ids of all channels, those of `events` made if need be, and which are private."""
    places = {(event.network, event.channel, event.private) for event in events}
    await connection.executemany(_CHANNEL, places)
    async with connection.execute("SELECT id, network, name, private FROM channels") as cursor:
        rows = list(await cursor.fetchall())
    ids = {(row[1], folded(row[2])): row[0] for row in rows}
    return ids, {row[0] for row in rows if row[3]}
