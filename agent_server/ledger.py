"""What every tendril uses: counted in memory, written to the file from time to time.

No answer waits for the file. While it cannot be written (a full disk, a lock) the amounts stay
here and are written later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime

import structlog

from agent_server.prices import Price
from agent_server.usage import Usage
from storage.errors import Unavailable
from storage.usage import Amount, Entry, UsageTable

log = structlog.get_logger()

PAUSE = 2.0
"""Seconds between two writings: what a crash can lose."""


class Ledger:
    """The amounts that are not written yet."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self._table: UsageTable | None = None
        self._amounts: dict[Entry, Amount] = {}
        self._writing = asyncio.Lock()
        self._behind = False

    def note(self, tendril: str, model: str, used: Usage, *, requests: int = 1) -> None:
        """Count what a request took."""
        entry = Entry(datetime.now(UTC).date(), tendril, model)
        price = self._prices.get(model)
        cost = price.cost(used) if price else 0.0
        amount = Amount(requests, used.prompt, used.cached, used.completion, cost)
        self._amounts[entry] = self._amounts.get(entry, Amount()) + amount

    @asynccontextmanager
    async def kept_in(self, table: UsageTable) -> AsyncIterator[None]:
        """Write what comes to `table`, every few seconds and at the end."""
        self._table = table
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._keep_writing())
            try:
                yield
            finally:
                async with self._writing:  # not in the middle of a transaction
                    writer.cancel()
                    await self._write()

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(PAUSE)
            async with self._writing:
                await self._write()

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Mapping[Entry, Amount]:
        """All amounts of these days, written or not. Raises Unavailable."""
        assert self._table is not None
        async with self._writing:
            await self._write()
            found = dict(await self._table.read(since, until, tendril))
        for entry, amount in self._amounts.items():
            if since <= entry.day <= until and tendril in (None, entry.tendril):
                found[entry] = found.get(entry, Amount()) + amount
        return dict(sorted(found.items()))

    async def _write(self) -> None:
        assert self._table is not None
        amounts, self._amounts = self._amounts, {}
        if not amounts:
            return
        try:
            await self._table.add(amounts)
        except Unavailable as error:
            self._take_back(amounts)
            if not self._behind:
                log.warning("usage.unwritten", error=str(error))
            self._behind = True
        else:
            self._behind = False

    def _take_back(self, amounts: Mapping[Entry, Amount]) -> None:
        for entry, amount in amounts.items():
            self._amounts[entry] = amount + self._amounts.get(entry, Amount())
