"""The usage of each key, recorded for `/usage`, and all that engines share of metering."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime

from agent_server.metering.accounts import Accounts, ServerAccounts
from agent_server.metering.metrics import Metrics
from agent_server.settings.prices import Price, UsageSettings
from storage.usage.usage import UsageAmount, UsageKey, UsageTable, WriteBehindCounter
from terrarium.usage import TokenUsage


class UsageRecorder:
    """Counts usage by day, tendril and model, in memory until it is written."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self._table: UsageTable | None = None
        self._tally: WriteBehindCounter[UsageKey] = WriteBehindCounter(self._write)

    def record(self, tendril: str, model: str, used: TokenUsage, *, requests: int = 1) -> float:
        """Count the usage of a request, and return its cost."""
        price = self._prices.get(model)
        cost = price.cost(used) if price else 0.0
        amount = UsageAmount(requests, used.prompt, used.cached, used.completion, cost)
        self._tally.add(UsageKey(datetime.now(UTC).date(), tendril, model), amount)
        return cost

    @asynccontextmanager
    async def writing_to(self, table: UsageTable) -> AsyncIterator[None]:
        """Write the counts to `table`, every few seconds and at the end."""
        self._table = table
        async with self._tally.writing():
            yield

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Mapping[UsageKey, UsageAmount]:
        """Return all amounts of these days, written or not. Raises Unavailable."""
        assert self._table is not None
        async with self._tally.quiesce():
            found = dict(await self._table.read(since, until, tendril))
        for usage_key, amount in self._tally.unwritten.items():
            if since <= usage_key.day <= until and tendril in (None, usage_key.tendril):
                found[usage_key] = found.get(usage_key, UsageAmount()) + amount
        return dict(sorted(found.items()))

    async def _write(self, amounts: Mapping[UsageKey, UsageAmount]) -> None:
        assert self._table is not None
        await self._table.add(amounts)


@dataclass(frozen=True, slots=True)
class Metering:
    """The accounts, records and metrics that all engines share."""

    accounts: Accounts
    recorder: UsageRecorder
    metrics: Metrics
    log_prompts: bool = False

    @classmethod
    def from_settings(
        cls, usage: UsageSettings, accounts: Accounts | None, *, log_prompts: bool
    ) -> Metering:
        """Make what `[usage]` asks for; without `accounts` that others share, with its own."""
        accounts = accounts or ServerAccounts(usage.budgets)
        return cls(accounts, UsageRecorder(usage.prices), Metrics(), log_prompts)
