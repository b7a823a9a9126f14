"""Budgets: tokens and money that may be spent in a UTC day, in all or by each tendril, model,
channel or person.

What was spent is read from the usage tables at a start. Whose request it was is known by pseudonyms
only (`x-person`, `x-channel`), and what each of them has spent is kept until midnight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agent_server.errors import RateLimited
from agent_server.metering.request_context import OURSELVES, RequestContext
from agent_server.settings.prices import BudgetSettings

_DAY = 86_400
_MOST = 100_000  # persons or channels of one budget in a day; all others share one


@dataclass(slots=True)
class _Spent:
    """Tokens, and their cost in the currency of the price table."""

    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Spender:
    """Those in whose budgets a request is: its tendril and model, and the pseudonyms of its channel
    and person, "" where there is none."""

    tendril: str
    model: str
    channel: str = ""
    person: str = ""

    @classmethod
    def of_request(cls, context: RequestContext, model: str) -> Spender:
        """Return those of a request to a model."""
        return cls(context.key.name, model, context.channel, context.person)


class Budgets:
    """The budgets by name. Times are seconds since 1970.

    A budget is used up when as much as its limit was spent: requests that are answered at that
    moment go on to their end. A model's own tests are in no budget. Without any (`are_set`) nothing
    has to be counted.
    """

    def __init__(self, settings: Mapping[str, BudgetSettings]) -> None:
        self.are_set = bool(settings)
        self._settings = settings
        self._day = 0
        self._spent: dict[str, dict[str, _Spent]] = {}

    def require_room(self, spender: Spender, now: float) -> None:
        """Raise RateLimited while a budget of the request is used up."""
        for name, spent in self._accounts(spender, now):
            budget = self._settings[name]
            if budget.tokens_per_day is not None and spent.tokens >= budget.tokens_per_day:
                raise _exhausted(name, f"{budget.tokens_per_day:,} tokens", now)
            if budget.cost_per_day is not None and spent.cost >= budget.cost_per_day:
                raise _exhausted(name, f"{budget.cost_per_day:g} (money)", now)

    def restore(self, spender: Spender, tokens: int, cost: float, now: float) -> None:
        """Count what a person on a channel had used before this start, in their own budgets."""
        for name, spent in self._accounts(spender, now):
            if self._settings[name].is_of_people:
                spent.tokens += tokens
                spent.cost += cost

    def spend(self, spender: Spender, tokens: int, cost: float, now: float) -> None:
        """Count what a request has used."""
        for _, spent in self._accounts(spender, now):
            spent.tokens += tokens
            spent.cost += cost

    def _accounts(self, spender: Spender, now: float) -> list[tuple[str, _Spent]]:
        """Return the budgets in which a request is, with what was spent of each today."""
        day = int(now // _DAY)
        if day > self._day:
            self._day, self._spent = day, {}
        if spender.tendril == OURSELVES.name:
            return []
        found = []
        for name, budget in self._settings.items():
            account = _account(budget, spender)
            if account is not None:
                accounts = self._spent.setdefault(name, {})
                if account not in accounts and len(accounts) >= _MOST:
                    account = ""
                found.append((name, accounts.setdefault(account, _Spent())))
        return found


def _account(budget: BudgetSettings, spender: Spender) -> str | None:
    """Return the name under which a budget counts a request, None for one that is not in it."""
    if budget.tendril not in (None, spender.tendril) or budget.model not in (None, spender.model):
        return None
    if budget.per == "all":
        return ""
    return str(getattr(spender, budget.per)) or None


def _exhausted(name: str, limit: str, now: float) -> RateLimited:
    wait = math.ceil(_DAY - now % _DAY)
    return RateLimited(
        f"the budget {name} of {limit} a day is used up; try again in {wait} s",
        code="budget_exhausted",
        headers={"retry-after": str(wait)},
    )
