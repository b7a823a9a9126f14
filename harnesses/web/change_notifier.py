"""The live end of the log, which another process writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from storage.chat_log.event import Event
from storage.db.database import Database
from storage.log import ChatLog, Query

_BATCH = 200


class LogChangeNotifier:
    """Tells any number of readers that the log has changed; one look serves them all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = asyncio.Event()
        self._closed = False

    async def watch(self) -> None:
        """Wait for changes for ever."""
        async for _ in self._database.changes():
            self._wake()

    def close(self) -> None:
        """End every reader's stream: the server is stopping."""
        self._closed = True
        self._wake()

    async def events(
        self, log: ChatLog, query: Query, is_open: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Event]:
        """The events that fit `query` and came after its `after_id`, in the order in which they
        came, until `close`, or until there are some and `is_open` returns False."""
        position = await log.arrival_of(query.after_id or 0)
        if position is None:  # what came since is too long ago: that is read in order of time
            end = await log.end()
            position = end.position
            async for event in self._between(log, query, end.newest_id, is_open):
                yield event
        query = replace(query, after_id=None, limit=_BATCH)
        while not self._closed:
            changed = self._changed  # taken before reading, so that no change falls between
            found = await log.arrivals(query, position)
            position = found.position
            if found.events and not await is_open():
                return
            for event in found.events:
                yield event
            if len(found.events) < _BATCH and not self._closed:
                await changed.wait()

    async def _between(
        self, log: ChatLog, query: Query, newest: int, is_open: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Event]:
        """Yield the events that fit `query` up to the id `newest`, while `is_open` returns True."""
        position = query.after_id or 0
        while not self._closed and await is_open():
            piece = replace(query, after_id=position, before_id=newest + 1, limit=_BATCH)
            found = await log.find(piece, newest=False)
            for event in found:
                position = event.id
                yield event
            if len(found) < _BATCH:
                return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
