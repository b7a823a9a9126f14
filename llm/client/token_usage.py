"""The accounting of a tendril's tokens by purpose, persistent over restarts.

`AgentClient` passes the usage of each answer to `record`. The `purpose` of a request separates
answers to people from background work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta

from llm.client.client import RequestOptions
from storage.db.database import Database
from storage.usage.token_spending import Spending, TokenSpend
from storage.usage.usage import UsageAmount, WriteBehindCounter
from terrarium.usage import TokenUsage

ANSWER = "answer"
"""The purpose of answers to people. Unasked runs have their profile as their purpose (see
`llm.agent.tool_executor`); memory and reviews have separate ones."""

_NAMED_LIFETIME = timedelta(days=30)  # after which amounts no longer name their conversation


def _now() -> datetime:
    return datetime.now(UTC)


class TokenAccounting:
    """The tokens spent, in memory and in the tendril's file. Create one with `open`."""

    def __init__(self, spending: Spending, now: Callable[[], datetime]) -> None:
        self._spending = spending
        self._now = now
        self._tally: WriteBehindCounter[TokenSpend] = WriteBehindCounter(self._write)
        self._day = now().date()
        self._today: Counter[str] = Counter()
        self._named_since = date.min

    @classmethod
    @asynccontextmanager
    async def open(
        cls, database: Database, now: Callable[[], datetime] = _now
    ) -> AsyncIterator[TokenAccounting]:
        """Open the accounts in `database`, which are written every few seconds and on exit. Raises
        StorageError."""
        accounting = cls(Spending(database), now)
        await accounting._load()
        async with accounting._tally.writing():
            yield accounting

    def record(self, options: RequestOptions, usage: TokenUsage) -> None:
        """Record the usage of one answer of the model."""
        expense = TokenSpend(self._roll_over(), options.room, options.session, options.purpose)
        amount = UsageAmount(1, usage.prompt, usage.cached, usage.completion)
        self._tally.add(expense, amount)
        self._today[options.purpose] += usage.prompt + usage.completion

    def today(self, purpose: str | None = None) -> int:
        """Return the prompt and completion tokens used since midnight UTC, for one purpose or
        all."""
        self._roll_over()
        return self._today[purpose] if purpose else self._today.total()

    def today_by_purpose(self) -> dict[str, int]:
        """Return the tokens used since midnight UTC by purpose, largest first."""
        self._roll_over()
        return dict(self._today.most_common())

    async def by_purpose(
        self, since: date, *, room: str | None = None, conversation: str | None = None
    ) -> dict[str, UsageAmount]:
        """Return the amounts spent by purpose since a UTC day, optionally of one room or one
        conversation (the session of its requests) only. Raises StorageError."""
        async with self._tally.quiesce():
            return await self._spending.by_purpose(
                since, self._now().date(), room=room, conversation=conversation
            )

    async def forget(self, session: str) -> None:
        """Anonymise the amounts of a conversation. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget(session)

    async def forget_names(self) -> None:
        """Anonymise the amounts of all conversations. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget_names()

    async def _load(self) -> None:
        for purpose, amount in (await self._spending.by_purpose(self._day, self._day)).items():
            self._today[purpose] = amount.prompt + amount.completion

    async def _write(self, amounts: Mapping[TokenSpend, UsageAmount]) -> None:
        oldest = self._now().date() - _NAMED_LIFETIME
        if oldest != self._named_since:  # once a day
            await self._spending.forget_before(oldest)
            self._named_since = oldest
        await self._spending.add(amounts)

    def _roll_over(self) -> date:
        """Return the current UTC day; reset today's counts when a new one has begun."""
        day = self._now().date()
        if day != self._day:
            self._day, self._today = day, Counter()
        return day
