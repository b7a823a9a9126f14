"""The accounts of keys and budgets: what a request expects to use is reserved, and settled when it
has ended.

One server keeps its accounts itself; several servers share those of one process
(`agent_server/ray/shared_admission.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from secrets import token_hex
from typing import Protocol

from agent_server.metering.budgets import Budgets, Spender
from agent_server.metering.quotas import Charge, Quotas
from agent_server.settings.prices import BudgetSettings
from storage.db.database import Database
from storage.usage.api_keys import Key
from storage.usage.spender_usage import SpenderUsage
from storage.usage.usage import UsageTable
from terrarium.clock import SteadyClock


@dataclass(frozen=True, slots=True)
class ExpectedUse:
    """About how many tokens a request will use, of the quotas of `key` and the budgets of
    `spender`.

    Without a `spender` tokens are only counted: as many of them as of answers, and in no budget.
    With `again` it is a further part of an answer that was begun, which nothing stops.
    """

    key: Key
    tokens: int
    spender: Spender | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation in the accounts of the process `ledger`, to be settled when its request has
    ended; `charge` is None for a key without quotas."""

    ledger: str
    charge: Charge | None
    spender: Spender | None


class Accounts(Protocol):
    """The usage of all keys and budgets, against their limits."""

    async def reserve(self, use: ExpectedUse) -> Reservation | None:
        """Reserve what a request expects to use; None where no limit holds.

        Raises RateLimited while a quota or a budget is used up.
        """

    def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation to the `tokens` and the `cost` of its request."""

    async def restore(self, database: Database) -> None:
        """Count what was used today before this start. Raises Unavailable."""


class ServerAccounts:
    """The accounts of one process; fits `Accounts`."""

    def __init__(
        self, budgets: Mapping[str, BudgetSettings], clock: SteadyClock | None = None
    ) -> None:
        self._ledger = token_hex(8)
        self._answers, self._counts = Quotas(), Quotas()
        self._budgets = Budgets(budgets)
        self._clock = clock or SteadyClock()

    async def reserve(self, use: ExpectedUse) -> Reservation | None:
        """Reserve what a request expects to use. Raises RateLimited."""
        now, quotas = self._clock.time(), self._answers if use.spender else self._counts
        spender = use.spender if self._budgets.are_set else None
        if spender and not use.again:
            self._budgets.require_room(spender, now)
        charge = quotas.charge(use.key, use.tokens, now, again=use.again)
        if charge is None and spender is None:
            return None
        return Reservation(self._ledger, charge, use.spender)

    def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation. One that a process before this has made counts whole."""
        spender = reservation.spender
        if charge := reservation.charge:
            if reservation.ledger != self._ledger:
                charge = replace(charge, tokens=0)
            (self._answers if spender else self._counts).reconcile(charge, tokens)
        if spender and tokens:
            self._budgets.spend(spender, tokens, cost, self._clock.time())

    async def restore(self, database: Database) -> None:
        """Count what was used today before this start. Raises Unavailable."""
        now = self._clock.time()
        today = datetime.fromtimestamp(now, UTC).date()
        used: Counter[str] = Counter()
        for usage_key, amount in await UsageTable(database).read(today, today):
            tokens = amount.prompt + amount.completion
            used[usage_key.tendril] += tokens
            spender = Spender(usage_key.tendril, usage_key.model)
            self._budgets.spend(spender, tokens, amount.cost, now)
        for tendril, tokens in used.items():
            self._answers.seed(tendril, tokens, now)
        for key, tokens, cost in await SpenderUsage(database).read(today):
            spender = Spender(key.tendril, key.model, key.channel, key.person)
            self._budgets.restore(spender, tokens, cost, now)
