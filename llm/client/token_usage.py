"""The accounting of a tendril's tokens by purpose, kept over restarts.

`AgentClient` tells the usage of each answer to `record`. The `purpose` of a request separates
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
"""The purpose of answers to people; what nobody has asked for has the profile of its run (see
`llm.agent.tool_executor`), and memory and reviews have purposes of their own."""

_NAMED = timedelta(days=30)  # for how long it is kept whose conversation it was


def _now() -> datetime:
    return datetime.now(UTC)


class TokenAccounting:
    """The tokens spent, in memory and in the tendril's file. Get one with `open`."""

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
        """Open the accounts in `database`, written every few seconds and at the end. Raises
        StorageError."""
        accounting = cls(Spending(database), now)
        await accounting._load()
        async with accounting._tally.writing():
            yield accounting

    def record(self, options: RequestOptions, usage: TokenUsage) -> None:
        """Count what an answer of the model took."""
        expense = TokenSpend(self._roll_over(), options.room, options.session, options.purpose)
        amount = UsageAmount(1, usage.prompt, usage.cached, usage.completion)
        self._tally.add(expense, amount)
        self._today[options.purpose] += usage.prompt + usage.completion

    def today(self, purpose: str | None = None) -> int:
        """Return the tokens read and written since midnight UTC, for one purpose or for all."""
        self._roll_over()
        return self._today[purpose] if purpose else self._today.total()

    def today_by_purpose(self) -> dict[str, int]:
        """Return the same for each purpose, the largest first."""
        self._roll_over()
        return dict(self._today.most_common())

    async def by_purpose(
        self, since: date, *, room: str | None = None, conversation: str | None = None
    ) -> dict[str, UsageAmount]:
        """Return what was spent on each purpose since a UTC day, in a room or a conversation (a
        call's session) where one is named. Raises StorageError."""
        async with self._tally.quiesce():
            return await self._spending.by_purpose(
                since, self._now().date(), room=room, conversation=conversation
            )

    async def forget(self, session: str) -> None:
        """Keep what a conversation has cost, but not whose it was. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget(session)

    async def forget_names(self) -> None:
        """Keep what all conversations have cost, but not whose they were. Raises StorageError."""
        async with self._tally.quiesce():
            await self._spending.forget_names()

    async def _load(self) -> None:
        for purpose, amount in (await self._spending.by_purpose(self._day, self._day)).items():
            self._today[purpose] = amount.prompt + amount.completion

    async def _write(self, amounts: Mapping[TokenSpend, UsageAmount]) -> None:
        oldest = self._now().date() - _NAMED
        if oldest != self._named_since:
            await self._spending.forget_before(oldest)
            self._named_since = oldest
        await self._spending.add(amounts)

    def _roll_over(self) -> date:
        """Return the UTC day; clear the counts when a new one has begun."""
        day = self._now().date()
        if day != self._day:
            self._day, self._today = day, Counter()
        return day
