"""What every tendril uses: counted in memory, written to the file from time to time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime

from agent_server.settings.prices import Price
from agent_server.usage import Usage
from storage.usage.usage import Amount, Entry, UsageTable
from storage.usage.write_behind import Tally


class Ledger:
    """The amounts of all tendrils and models."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self._table: UsageTable | None = None
        self._tally: Tally[Entry] = Tally(self._write)

    def note(self, tendril: str, model: str, used: Usage, *, requests: int = 1) -> None:
        """Count what a request took."""
        price = self._prices.get(model)
        cost = price.cost(used) if price else 0.0
        amount = Amount(requests, used.prompt, used.cached, used.completion, cost)
        self._tally.add(Entry(datetime.now(UTC).date(), tendril, model), amount)

    @asynccontextmanager
    async def kept_in(self, table: UsageTable) -> AsyncIterator[None]:
        """Write what comes to `table`, every few seconds and at the end."""
        self._table = table
        async with self._tally.kept():
            yield

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Mapping[Entry, Amount]:
        """All amounts of these days, written or not. Raises Unavailable."""
        assert self._table is not None
        async with self._tally.settled():
            found = dict(await self._table.read(since, until, tendril))
        for entry, amount in self._tally.unwritten.items():
            if since <= entry.day <= until and tendril in (None, entry.tendril):
                found[entry] = found.get(entry, Amount()) + amount
        return dict(sorted(found.items()))

    async def _write(self, amounts: Mapping[Entry, Amount]) -> None:
        assert self._table is not None
        await self._table.add(amounts)
