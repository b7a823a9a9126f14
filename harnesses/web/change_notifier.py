"""Live reading of the log, which another process writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from storage.chat_log import arrivals
from storage.chat_log.arrivals import LogEnd
from storage.chat_log.event import Event
from storage.log import ChatLog, Query

_BATCH_SIZE = 200


class LogChangeNotifier:
    """Wakes any number of readers when the log changes; they share one watch of the database."""

    def __init__(self, log: ChatLog) -> None:
        self._log = log
        self._changed = asyncio.Event()
        self._closed = False

    async def watch(self) -> None:
        """Wake the readers at each change, until cancelled."""
        async for _ in self._log.database.changes():
            self._wake()

    def close(self) -> None:
        """End the streams of all readers, because the server is stopping."""
        self._closed = True
        self._wake()

    async def events(
        self, query: Query, is_open: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Event]:
        """Yield the events that match `query` and arrived after its `after_id`, as they arrive.

        They come in order of arrival, but if `after_id` has no arrival position, older ones come
        first, by id. Ends after `close`, or when there are new events but `is_open` returns False.
        """
        position = await self._log.read(arrivals.position_of, query.after_id or 0)
        if position is None:
            # The end is read before the history, so that events which arrive in between are not
            # missed: they follow as arrivals.
            end = await self._log.read(arrivals.end)
            position = end.position
            async for event in self._between(query, end, is_open):
                yield event
        query = replace(query, after_id=None, limit=_BATCH_SIZE)
        while not self._closed:
            changed = self._changed  # taken before reading: a change during it sets this one
            found = await self._log.read(arrivals.after, query, position)
            position = found.position
            # Checked after reading, so that nothing logged after a logout is shown.
            if found.events and not await is_open():
                return
            for event in found.events:
                yield event
            if len(found.events) < _BATCH_SIZE and not self._closed:
                await changed.wait()

    async def _between(
        self, query: Query, end: LogEnd, is_open: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[Event]:
        """Yield the events that match `query` and arrived before `end`, oldest first, while
        `is_open` returns True."""
        position = query.after_id or 0
        while not self._closed and await is_open():
            piece = replace(
                query, after_id=position, before_id=end.newest_id + 1, limit=_BATCH_SIZE
            )
            found = await self._log.find(piece, newest=False)
            # Ids follow the times of events, so one that has arrived since may be among them. It
            # is left out here, as it follows as an arrival.
            ids = frozenset(event.id for event in found)
            since = await self._log.read(arrivals.after, replace(piece, ids=ids), end.position)
            late = {event.id for event in since.events}
            for event in found:
                position = event.id
                if event.id not in late:
                    yield event
            if len(found) < _BATCH_SIZE:
                return

    def _wake(self) -> None:
        # Each change has its own Event: a single one would need to be cleared by some reader, which
        # could swallow the change for the others.
        self._changed.set()
        self._changed = asyncio.Event()
