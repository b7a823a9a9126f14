"""The usage of each key, recorded for `/usage`, and all that engines share of metering."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime

import structlog

from agent_server.metering.accounts import Accounts, ServerAccounts
from agent_server.metering.budgets import Spender
from agent_server.metering.metrics import Metrics
from agent_server.settings.prices import UsageSettings
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.usage.spender_usage import SpenderKey, SpenderUsage
from storage.usage.usage import UsageAmount, UsageKey, UsageTable, WriteBehindCounter
from terrarium.usage import TokenUsage

FORGET = 600.0
"""Seconds between two looks for what was used by persons and channels on days before."""

log = structlog.get_logger()


class UsageRecorder:
    """Counts usage by day, tendril and model, in memory until it is written."""

    def __init__(self, usage: UsageSettings) -> None:
        self._prices = usage.prices
        self._keeps_spenders = any(each.is_of_people for each in usage.budgets.values())
        self._table: UsageTable | None = None
        self._spenders: SpenderUsage | None = None
        self._tally: WriteBehindCounter[UsageKey] = WriteBehindCounter(self._write)
        self._people: WriteBehindCounter[SpenderKey] = WriteBehindCounter(self._write_spenders)

    def record(self, spender: Spender, used: TokenUsage, *, requests: int = 1) -> float:
        """Count the usage of a request, and return its cost."""
        price = self._prices.get(spender.model)
        cost = price.cost(used) if price else 0.0
        amount = UsageAmount(requests, used.prompt, used.cached, used.completion, cost)
        today = datetime.now(UTC).date()
        self._tally.add(UsageKey(today, spender.tendril, spender.model), amount)
        if self._keeps_spenders and (spender.channel or spender.person):
            key = SpenderKey(today, spender.tendril, spender.model, spender.channel, spender.person)
            self._people.add(key, amount)
        return cost

    @asynccontextmanager
    async def writing_to(self, database: Database) -> AsyncIterator[None]:
        """Write the counts to tables of `database`, every few seconds and at the end."""
        self._table, self._spenders = UsageTable(database), SpenderUsage(database)
        async with self._tally.writing(), self._people.writing():
            forgetting = asyncio.create_task(self._forget_spenders())
            try:
                yield
            finally:
                forgetting.cancel()
                await asyncio.wait({forgetting})

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

    async def _forget_spenders(self) -> None:
        """Remove what persons and channels have used on days before, until cancelled."""
        assert self._spenders is not None
        while True:
            try:
                await self._spenders.forget_before(datetime.now(UTC).date())
            except Unavailable as error:  # a full disk passes
                log.warning("usage.not_forgotten", error=str(error))
            await asyncio.sleep(FORGET)

    async def _write_spenders(self, amounts: Mapping[SpenderKey, UsageAmount]) -> None:
        assert self._spenders is not None
        await self._spenders.add(amounts)

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
        return cls(accounts, UsageRecorder(usage), Metrics(), log_prompts)
