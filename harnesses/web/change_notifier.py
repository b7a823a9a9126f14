"""The live end of the log, which another process writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from storage.chat_log.event import Event
from storage.db.database import Database
from storage.log import ChatLog, Query

POLL = 0.2  # seconds between two looks at the file's version
_BATCH = 200


class LogChangeNotifier:
    """Tells any number of readers that the log's file has changed; one poll serves them all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = asyncio.Event()
        self._closed = False

    async def watch(self) -> None:
        """Look at the file for ever."""
        seen = await self._database.version()
        while True:
            await asyncio.sleep(POLL)
            version = await self._database.version()
            if version != seen:
                seen = version
                self._wake()

    def close(self) -> None:
        """End every reader's stream: the server is stopping."""
        self._closed = True
        self._wake()

    async def events(self, log: ChatLog, query: Query) -> AsyncIterator[Event]:
        """The events that fit `query` after its `after_id`, in order, until `close`."""
        position = query.after_id or 0
        while not self._closed:
            changed = self._changed  # taken before reading, so that no change falls between
            found = await log.find(replace(query, after_id=position, limit=_BATCH), newest=False)
            for event in found:
                position = event.id
                yield event
            if len(found) < _BATCH and not self._closed:
                await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
