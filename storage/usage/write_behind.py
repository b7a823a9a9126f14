"""Amounts that are counted in memory and written from time to time: no answer waits for the file.

While it cannot be written (a full disk, a lock) the amounts stay here and are written later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import structlog

from storage.db.errors import Unavailable
from storage.usage.usage import UsageAmount

PAUSE = 2.0
"""Seconds between two writings: what a crash can lose."""

K = TypeVar("K")

_log = structlog.get_logger()


class WriteBehindCounter(Generic[K]):
    """The amounts that are not written yet, by what they are for. `write` adds some to the file,
    all or nothing, and may raise Unavailable."""

    def __init__(self, write: Callable[[Mapping[K, UsageAmount]], Awaitable[None]]) -> None:
        self._write = write
        self._amounts: dict[K, UsageAmount] = {}
        self._writing = asyncio.Lock()
        self._behind = False

    def add(self, key: K, amount: UsageAmount) -> None:
        """Count one more."""
        self._amounts[key] = self._amounts.get(key, UsageAmount()) + amount

    @property
    def unwritten(self) -> Mapping[K, UsageAmount]:
        """Return what is in memory only."""
        return self._amounts

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write what comes, every few seconds and at the end."""
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._keep_writing())
            try:
                yield
            finally:
                async with self._writing:  # not in the middle of a transaction
                    writer.cancel()
                    await self._settle()

    @asynccontextmanager
    async def quiesce(self) -> AsyncIterator[None]:
        """While the block runs the file has all that it can have, and nothing is added to it."""
        async with self._writing:
            await self._settle()
            yield

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            async with self._writing:
                await self._settle()

    async def _settle(self) -> None:
        amounts, self._amounts = self._amounts, {}
        if not amounts:
            return
        try:
            await self._write(amounts)
        except Unavailable as error:
            for key, amount in amounts.items():
                self.add(key, amount)
            if not self._behind:
                _log.warning("usage.unwritten", error=str(error))
            self._behind = True
        else:
            self._behind = False
