"""Quotas and budgets, their accounts, and the recorded usage of keys.

What a request is expected to use is reserved before it starts, and settled when it has ended.

Quotas are those of a key. Times are in seconds since 1970 of a `SteadyClock`: if a time of day were
set back, windows would stay full for as long. A quota is exhausted once its limit has been used, so
the last request admitted may exceed it, as the cost of an answer is known only at its end. All
tokens of an answer count at the time of its admission.

Budgets are tokens and money that may be spent in a UTC day, in all or by each tendril, model,
channel or person. At the start, what was spent today is read from the usage tables. Channels and
persons are known only by pseudonyms (`x-channel`, `x-person`), and what they have spent is kept
only for the day.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import structlog

from agent_server.errors import RateLimited
from agent_server.metering.request_context import OURSELVES
from agent_server.metering.telemetry import Metrics, Tracing
from agent_server.settings.prices import BudgetSettings, UsageSettings
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.usage.api_keys import Key
from storage.usage.usage import (
    SpenderKey,
    SpenderUsage,
    TokenUsage,
    UsageAmount,
    UsageKey,
    UsageTable,
    WriteBehindCounter,
)
from terrarium.cancellation import run_beside
from terrarium.clock import SteadyClock

MINUTE, DAY = 60, 86_400


class RateWindow:
    """A sliding window over the last minute, with a resolution of a second."""

    def __init__(self) -> None:
        self._total = 0
        self._seconds: deque[list[int]] = deque()

    def add(self, now: float, amount: int) -> None:
        """Count `amount` as used now."""
        second = math.floor(now)
        self._total += amount
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += amount
        else:
            self._seconds.append([second, amount])

    def correct(self, then: float, amount: int) -> None:
        """Change what was used at the time `then` by `amount`, if that is still in the window."""
        second = math.floor(then)
        # A request admitted over a minute ago has left the window, and needs no correction.
        for entry in reversed(self._seconds):
            if entry[0] == second:
                entry[1] += amount
                self._total += amount

    def total(self, now: float) -> int:
        """Return what is used within the window."""
        # An entry stands for a whole second, so it expires a minute after the end of that second.
        while self._seconds and self._seconds[0][0] + 1 + MINUTE <= now:
            self._total -= self._seconds.popleft()[1]
        return self._total

    def retry_after(self, now: float, limit: int) -> float:
        """Return the seconds until less than `limit` is used within the window; 0 means now."""
        left = self.total(now)
        if left < limit:
            return 0.0
        for second, amount in self._seconds:
            left -= amount
            if left < limit:
                return second + 1 + MINUTE - now
        return 0.0


@dataclass(slots=True)
class _Used:
    """The usage of one key; `today` are the tokens of the UTC day number `day`."""

    requests: RateWindow = field(default_factory=RateWindow)
    tokens: RateWindow = field(default_factory=RateWindow)
    day: int = 0
    today: int = 0


class Quotas:
    """The usage of all keys against their quotas."""

    def __init__(self) -> None:
        self._used: dict[str, _Used] = {}

    def seed(self, key: str, tokens: int, now: float) -> None:
        """Set the tokens that `key` had used today before a restart."""
        used = self._used.setdefault(key, _Used())
        used.day, used.today = int(now // DAY), tokens

    def charge(self, key: Key, tokens: int, now: float, *, is_admitted: bool = False) -> None:
        """Charge a request with about `tokens`. Raises RateLimited while a quota is exhausted.

        With `is_admitted` it is a further call for a request that was charged before: it is neither
        refused nor counted as another request.
        """
        used = self._used.setdefault(key.name, _Used())
        if used.day != int(now // DAY):
            used.day, used.today = int(now // DAY), 0
        if not is_admitted:
            if limit := key.requests_per_minute:
                _refuse(used.requests.retry_after(now, limit), f"{limit} requests per minute")
            if limit := key.tokens_per_minute:
                _refuse(used.tokens.retry_after(now, limit), f"{limit} tokens per minute")
            if (limit := key.tokens_per_day) and used.today >= limit:
                _refuse(DAY - now % DAY, f"{limit} tokens per day")
            used.requests.add(now, 1)
        # The estimate counts at once, so that requests in flight fill the window too.
        used.tokens.add(now, tokens)
        used.today += tokens

    def headers(self, key: Key, now: float) -> Mapping[str, str]:
        """Return the `x-ratelimit-*` headers of OpenAI's API: each limit of `key` for a minute,
        what is left of it, and when all of it will be."""
        used, found = self._used.get(key.name, _Used()), dict[str, str]()
        for kind, window, limit in (
            ("requests", used.requests, key.requests_per_minute),
            ("tokens", used.tokens, key.tokens_per_minute),
        ):
            if limit:
                found[f"x-ratelimit-limit-{kind}"] = str(limit)
                found[f"x-ratelimit-remaining-{kind}"] = str(max(0, limit - window.total(now)))
                found[f"x-ratelimit-reset-{kind}"] = f"{math.ceil(window.retry_after(now, 1))}s"
        return found

    def correct(self, key: str, then: float, more: int) -> None:
        """Correct the charge of a request at the time `then` by `more` tokens."""
        day, used = int(then // DAY), self._used[key]
        used.tokens.correct(then, more)
        # The tokens count for the day of the admission, not for that of the end.
        if used.day == day:
            used.today += more


def _refuse(seconds: float, quota: str) -> None:
    if seconds > 0:
        raise RateLimited(
            f"this key's quota of {quota} is used up", code="quota_exceeded", retry_after=seconds
        )


MAX_ACCOUNTS = 100_000
"""Accounts of one budget in a day; all further persons or channels share one."""


@dataclass(slots=True)
class _Spent:
    """Tokens, and their cost in the currency of the price table."""

    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Spender:
    """The parties whose budgets a request counts against.

    `channel` and `person` are pseudonyms, "" where there are none.
    """

    tendril: str
    model: str
    channel: str = ""
    person: str = ""


Spent = tuple[Spender, int, float]
"""The tokens and the cost of today: of a tendril with a model in all or, if the spender has a
channel or a person, the part of it by these."""


class Budgets:
    """The budgets by name. Times are in seconds since 1970.

    A budget is exhausted once its limit has been spent; answers in progress then continue to their
    end. The server's own tests of models are in no budget.
    """

    def __init__(self, settings: Mapping[str, BudgetSettings]) -> None:
        self.settings = settings
        self._day = 0
        self._spent: dict[str, dict[str, _Spent]] = {}

    def require_room(self, spender: Spender, now: float) -> None:
        """Raise RateLimited if a budget of the spender is exhausted."""
        for name, spent in self._accounts(spender, now):
            budget = self.settings[name]
            if budget.tokens_per_day is not None and spent.tokens >= budget.tokens_per_day:
                raise _exhausted(name, f"{budget.tokens_per_day:,} tokens", now)
            if budget.cost_per_day is not None and spent.cost >= budget.cost_per_day:
                raise _exhausted(name, f"{budget.cost_per_day:g} (money)", now)

    def spend(
        self, spender: Spender, tokens: int, cost: float, now: float, *, of_people: bool = False
    ) -> None:
        """Count the tokens and the cost of a request in all budgets of the spender, or in those of
        each person or channel only."""
        for name, spent in self._accounts(spender, now):
            if self.settings[name].is_of_people or not of_people:
                spent.tokens += tokens
                spent.cost += cost

    def _accounts(self, spender: Spender, now: float) -> list[tuple[str, _Spent]]:
        """Return the budgets of a spender by name, each with what was spent of it today."""
        day = int(now // DAY)
        if day > self._day:
            self._day, self._spent = day, {}
        if spender.tendril == OURSELVES.name:
            return []
        found = []
        for name, budget in self.settings.items():
            account = "" if budget.per == "all" else str(getattr(spender, budget.per))
            if (
                budget.tendril not in (None, spender.tendril)
                or budget.model not in (None, spender.model)
                or not (account or budget.per == "all")
            ):
                continue
            accounts = self._spent.setdefault(name, {})
            # Pseudonyms come from clients: memory must stay bounded however many they make up.
            if account not in accounts and len(accounts) >= MAX_ACCOUNTS:
                account = ""
            found.append((name, accounts.setdefault(account, _Spent())))
        return found


def _exhausted(name: str, limit: str, now: float) -> RateLimited:
    text = f"the budget {name} of {limit} a day is used up"
    return RateLimited(text, code="budget_exhausted", retry_after=DAY - now % DAY)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The expected use of a request, entered at a time and settled when it has ended."""

    key: Key
    tokens: int
    time: float
    spender: Spender | None


class Accounts:
    """The accounts of quotas and budgets."""

    def __init__(self, budgets: Mapping[str, BudgetSettings]) -> None:
        self._answers, self._counts = Quotas(), Quotas()
        self._budgets = Budgets(budgets)
        self._clock = SteadyClock()

    def reserve(
        self,
        key: Key,
        tokens: int,
        spender: Spender | None = None,
        *,
        is_admitted: bool = False,
        is_continuation: bool = False,
    ) -> Reservation:
        """Reserve the tokens that a request is expected to use. Raises RateLimited.

        Without a `spender` the request only counts tokens: it has quotas of its own, with the same
        limits, and is in no budget. `is_admitted` is set for every call after the first for a
        request, be it another model's after a failure: the quotas of its key have admitted the
        request already. `is_continuation` is set for a further part of an answer, which no budget
        refuses.
        """
        now = self._clock.time()
        # Before the charge, which a refusal would have to undo.
        if spender and not is_continuation:
            self._budgets.require_room(spender, now)
        if key.has_quotas:
            quotas = self._answers if spender else self._counts
            quotas.charge(key, tokens, now, is_admitted=is_admitted)
        return Reservation(key, tokens, now, spender)

    def settle(self, reserved: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation to the actual use of its request."""
        spender = reserved.spender
        if reserved.key.has_quotas:
            quotas = self._answers if spender else self._counts
            quotas.correct(reserved.key.name, reserved.time, tokens - reserved.tokens)
        if spender and tokens:
            self._budgets.spend(spender, tokens, cost, self._clock.time())

    def rate_limits(self, key: Key) -> Mapping[str, str]:
        """Return the headers that tell a key what is left of its quotas for answers."""
        return self._answers.headers(key, self._clock.time())

    async def restore(self, recorder: UsageRecorder) -> None:
        """Count what was used today before this start. Raises Unavailable."""
        used, spent_today = Counter[str](), await recorder.read_spent()
        self.change_budgets(self._budgets.settings, spent_today)
        for spender, tokens, _ in spent_today:
            if not (spender.channel or spender.person):
                used[spender.tendril] += tokens
        for tendril, tokens in used.items():
            self._answers.seed(tendril, tokens, self._clock.time())

    def change_budgets(
        self, settings: Mapping[str, BudgetSettings], spent_today: Iterable[Spent]
    ) -> None:
        """Replace the budgets; what was spent today counts in the new ones. With no await between
        its reading and this, no request is missing."""
        self._budgets, now = Budgets(settings), self._clock.time()
        for spender, tokens, cost in spent_today:
            of_people = bool(spender.channel or spender.person)
            self._budgets.spend(spender, tokens, cost, now, of_people=of_people)


FORGET_INTERVAL = 600.0
"""Seconds between two deletions of what persons and channels used on earlier days."""

log = structlog.get_logger()


class UsageRecorder:
    """Counts usage by day, tendril and model, at the prices of its `settings`; buffers it in memory
    and writes it later."""

    def __init__(self, usage: UsageSettings) -> None:
        self.change(usage)
        self._database: Database | None = None
        self._table: UsageTable
        self._spenders: SpenderUsage
        self._tally = WriteBehindCounter[UsageKey](lambda amounts: self._table.add(amounts))
        self._people = WriteBehindCounter[SpenderKey](lambda amounts: self._spenders.add(amounts))

    def change(self, usage: UsageSettings) -> None:
        """Count what ends from now on by other settings."""
        self.settings = usage
        # Without a budget per person or channel nothing about them is stored.
        self._keeps_spenders = any(each.is_of_people for each in usage.budgets.values())

    def record(self, spender: Spender, used: TokenUsage, *, requests: int = 1) -> float:
        """Count the usage of a request; return its cost, 0 for a model without a price.

        `requests` is 0 for a further part of an answer.
        """
        price = self.settings.prices.get(spender.model)
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
        """Write the counts to `database` every few seconds and at the end of the block."""
        self._table, self._spenders = UsageTable(database), SpenderUsage(database)
        self._database = database

        async def forget_spenders() -> None:
            while True:  # what persons and channels used on earlier days
                try:
                    await self._spenders.forget_before(datetime.now(UTC).date())
                except Unavailable as error:  # a full disk passes
                    log.warning("usage.not_forgotten", error=str(error))
                await asyncio.sleep(FORGET_INTERVAL)

        async with self._tally.writing(), self._people.writing(), run_beside(forget_spenders()):
            yield

    @property
    def is_database_away(self) -> bool:
        """True while the server's database cannot be reached."""
        return self._database is not None and self._database.is_away

    @property
    def is_behind(self) -> bool:
        """True while counts cannot be written."""
        return self._tally.is_behind or self._people.is_behind

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Mapping[UsageKey, UsageAmount]:
        """Return the usage from `since` to `until` (inclusive), written or not, in order of key.
        Raises Unavailable."""
        async with self._tally.quiesce():
            found = dict(await self._table.read(since, until, tendril))
        # There is no await between the release of the lock and this: an amount that was written in
        # between would be missing from both the table's rows and the buffer.
        for usage_key, amount in self._tally.unwritten.items():
            if since <= usage_key.day <= until and tendril in (None, usage_key.tendril):
                found[usage_key] = found.get(usage_key, UsageAmount()) + amount
        return dict(sorted(found.items()))

    async def read_spent(self) -> Sequence[Spent]:
        """Return what was spent today, written or not. Raises Unavailable."""
        today = datetime.now(UTC).date()
        async with self._people.quiesce():
            written = await self._spenders.read(today)
            used = await self.read(today, today)
        # As in `read`, there is no await from here on.
        found = [
            (Spender(key.tendril, key.model), amount.tokens, amount.cost)
            for key, amount in used.items()
        ]
        unwritten = self._people.unwritten.items()
        for key, tokens, cost in (*written, *((k, a.tokens, a.cost) for k, a in unwritten)):
            found.append((Spender(key.tendril, key.model, key.channel, key.person), tokens, cost))
        return found


class Metering:
    """The accounts, the usage recorder, the metrics and the spans that all engines share."""

    def __init__(self, usage: UsageSettings, *, log_prompts: bool) -> None:
        self.accounts, self.recorder = Accounts(usage.budgets), UsageRecorder(usage)
        self.metrics, self.tracing = Metrics(), Tracing()
        self.metrics.watch_storage(
            lambda: self.recorder.is_behind, lambda: self.recorder.is_database_away
        )
        self.log_prompts = log_prompts

    async def change(self, usage: UsageSettings) -> None:
        """Apply other prices and budgets to what ends from now on. Raises Unavailable."""
        self.accounts.change_budgets(usage.budgets, await self.recorder.read_spent())
        self.recorder.change(usage)
