"""Token usage of requests, and of each tendril, by model and day, in the agent server's file; and
what a tendril has spent, by purpose, in its own.

Amounts are counted in memory and written behind every few seconds, so that no answer waits for the
file. While it cannot be written (a full disk, a lock) they stay in memory and are written later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Generic, TypeVar

import structlog

from storage.connection import Connection, adding
from storage.db.database import Repository, writes
from storage.db.errors import Unavailable

_AMOUNTS = ("requests", "prompt", "cached", "completion", "cost")
_ADD = f"""
INSERT INTO usage VALUES (:day, :tendril, :model, :{", :".join(_AMOUNTS)})
{adding("usage", ("day", "tendril", "model"), _AMOUNTS)}"""
_SPENDER = ("day", "tendril", "model", "channel", "person")
_ADD_SPENT = f"""
INSERT INTO spender_usage VALUES (:{", :".join(_SPENDER)}, :tokens, :cost)
{adding("spender_usage", _SPENDER, ("tokens", "cost"))}"""
_EXPENSE = ("day", "room", "conversation", "purpose")
_ADDING_EXPENSES = adding("spending", _EXPENSE, _AMOUNTS[:-1])
_ADD_EXPENSES = f"""
INSERT INTO spending VALUES (:{", :".join((*_EXPENSE, *_AMOUNTS[:-1]))}) {_ADDING_EXPENSES}"""
_SUM_OF_EXPENSES = ", ".join(f"sum({each})" for each in _AMOUNTS[:-1])
_NAMED_EXPENSES = """
(room, conversation) != ('', '') AND conversation = coalesce(:conversation, conversation)
AND (CAST(:before AS TEXT) IS NULL OR day < :before)"""
_NAMELESS_EXPENSES = f"""
INSERT INTO spending SELECT day, '', '', purpose, {_SUM_OF_EXPENSES} FROM spending
WHERE {_NAMED_EXPENSES} GROUP BY day, purpose {_ADDING_EXPENSES}"""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of prompt and completion; `cached` prompt tokens came from the engine's cache."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        prompt, completion = self.prompt + other.prompt, self.completion + other.completion
        return TokenUsage(prompt, completion, self.cached + other.cached)

    def merge_choice(self, other: TokenUsage) -> TokenUsage:
        """Add the usage of another choice of the same prompt; the prompt counts once."""
        prompt, completion = max(self.prompt, other.prompt), self.completion + other.completion
        return TokenUsage(prompt, completion, max(self.cached, other.cached))

    def limit_cached(self, limit: int) -> TokenUsage:
        """Return the usage with at most `limit` cached tokens."""
        return TokenUsage(self.prompt, self.completion, min(self.cached, limit))

    @classmethod
    def from_wire(cls, usage: Mapping[str, Any]) -> TokenUsage:
        """Parse the `usage` object of an engine; anything but a positive integer counts as 0."""
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        prompt = _count(usage.get("prompt_tokens"))
        return cls(prompt, _count(usage.get("completion_tokens")), min(_count(cached), prompt))

    def as_wire(self) -> dict[str, Any]:
        """Return the `usage` object of the API."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """The key of an amount: UTC day, tendril and model."""

    day: date
    tendril: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageAmount:
    """An amount of requests and tokens, of which `cached` came from the engine's prefix cache, and
    its `cost` in the currency of the price table."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """The tokens of prompts and answers."""
        return self.prompt + self.completion

    def __add__(self, other: UsageAmount) -> UsageAmount:
        names = UsageAmount.__slots__
        return UsageAmount(*(getattr(self, name) + getattr(other, name) for name in names))


def _rows_of(amounts: Mapping[Any, UsageAmount]) -> list[dict[str, Any]]:
    """Return the values of a row for each amount, by the names of its columns."""
    return [
        asdict(key) | {"day": key.day.isoformat(), "tokens": amount.tokens} | asdict(amount)
        for key, amount in amounts.items()
    ]


class UsageTable(Repository):
    """The amounts in a database file."""

    async def add(self, amounts: Mapping[UsageKey, UsageAmount]) -> None:
        """Add amounts to those stored, all in one transaction. Raises Unavailable."""
        await self._database.executemany(_ADD, _rows_of(amounts))

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        """Return the amounts of the days from `since` to `until`, both inclusive, in order of day,
        tendril and model. Raises Unavailable."""
        sql = "SELECT * FROM usage WHERE day BETWEEN ? AND ?"
        values = [since.isoformat(), until.isoformat()]
        if tendril is not None:
            sql += " AND tendril = ?"
            values.append(tendril)
        rows = await self._database.fetch_all(f"{sql} ORDER BY day, tendril, model", values)
        return [
            (UsageKey(date.fromisoformat(day), tendril, model), UsageAmount(*amount))
            for day, tendril, model, *amount in rows
        ]


@dataclass(frozen=True, slots=True)
class SpenderKey:
    """A spending budget's key: UTC day, tendril, model, pseudonyms of channel and person or ""."""

    day: date
    tendril: str
    model: str
    channel: str
    person: str


class SpenderUsage(Repository):
    """The amounts of people and channels in a database file. Earlier days are deleted."""

    async def add(self, amounts: Mapping[SpenderKey, UsageAmount]) -> None:
        """Add amounts to those stored, all in one transaction. Raises Unavailable."""
        await self._database.executemany(_ADD_SPENT, _rows_of(amounts))

    async def read(self, day: date) -> Sequence[tuple[SpenderKey, int, float]]:
        """Return the keys of a day, each with its tokens and their cost. Raises Unavailable."""
        sql = "SELECT * FROM spender_usage WHERE day = ?"
        rows = await self._database.fetch_all(sql, [day.isoformat()])
        return [(SpenderKey(day, *spender), tokens, cost) for _, *spender, tokens, cost in rows]

    async def forget_before(self, day: date) -> None:
        """Delete the amounts of all days before `day`. Raises Unavailable."""
        await self._database.execute("DELETE FROM spender_usage WHERE day < ?", [day.isoformat()])


@dataclass(frozen=True, slots=True)
class TokenSpend:
    """The key of an amount: UTC day, room, conversation and purpose."""

    day: date
    room: str
    conversation: str
    purpose: str


class Spending(Repository):
    """The amounts in a tendril's file. Their cost is computed by the agent server only."""

    async def add(self, amounts: Mapping[TokenSpend, UsageAmount]) -> None:
        """Add amounts to those stored, all in one transaction. Raises Unavailable."""
        await self._database.executemany(_ADD_EXPENSES, _rows_of(amounts))

    async def by_purpose(
        self, since: date, until: date, *, room: str | None = None, conversation: str | None = None
    ) -> dict[str, UsageAmount]:
        """Return what was spent on each purpose from `since` to `until`, both inclusive, by
        everything, a room or a conversation."""
        rows = await self._database.fetch_all(
            f"SELECT purpose, {_SUM_OF_EXPENSES} FROM spending WHERE day BETWEEN :since AND :until"
            " AND room = coalesce(:room, room)"
            " AND conversation = coalesce(:conversation, conversation)"
            " GROUP BY purpose ORDER BY purpose",
            {
                "since": since.isoformat(),
                "until": until.isoformat(),
                "room": room,
                "conversation": conversation,
            },
        )
        return {row["purpose"]: UsageAmount(*row[1:]) for row in rows}

    @writes
    def forget(
        self, db: Connection, *, conversation: str | None = None, before: date | None = None
    ) -> None:
        """Anonymise the amounts of a conversation, or of all, on the days `before` a day, or on
        all. Raises Unavailable."""
        # Sums by day and purpose stay, so that totals do not change; names may identify people.
        values = {"conversation": conversation, "before": before and before.isoformat()}
        db.execute(_NAMELESS_EXPENSES, values)
        db.execute(f"DELETE FROM spending WHERE {_NAMED_EXPENSES}", values)


WRITE_INTERVAL = 2.0
"""Seconds between two writes: what a crash can lose."""

K = TypeVar("K")

_log = structlog.get_logger()


class WriteBehindCounter(Generic[K]):
    """A counter of amounts by key, in memory until `write` adds them to the file.

    `write` is given the amounts since its last success. It must store all of them or none, and may
    raise Unavailable. `is_behind` is True if the last attempt to write has failed.
    """

    def __init__(self, write: Callable[[Mapping[K, UsageAmount]], Awaitable[None]]) -> None:
        self._write = write
        self._amounts: dict[K, UsageAmount] = {}
        self._writing = asyncio.Lock()
        self.is_behind = False

    def add(self, key: K, amount: UsageAmount) -> None:
        """Add an amount to those of a key."""
        self._amounts[key] = self._amounts.get(key, UsageAmount()) + amount

    @property
    def unwritten(self) -> Mapping[K, UsageAmount]:
        """The amounts that are not in the file yet."""
        return self._amounts

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write the amounts every few seconds while the block runs, and at its end."""
        async with asyncio.TaskGroup() as tasks:

            async def keep_writing() -> None:
                while True:
                    await asyncio.sleep(WRITE_INTERVAL)
                    async with self._writing:
                        await self._settle()

            writer = tasks.create_task(keep_writing())
            try:
                yield
            finally:
                # Under the lock, so that the writer is not cancelled within a transaction, when it
                # would be unknown whether its amounts are stored.
                async with self._writing:
                    writer.cancel()
                    await self._settle()

    @asynccontextmanager
    async def quiesce(self) -> AsyncIterator[None]:
        """Write all amounts that can be written, and write nothing more while the block runs."""
        async with self._writing:
            await self._settle()
            yield

    async def _settle(self) -> None:
        # Exchanged before the await: what is added meanwhile belongs to the next write.
        amounts, self._amounts = self._amounts, {}
        if not amounts:
            return
        try:
            await self._write(amounts)
        except Unavailable as error:
            for key, amount in amounts.items():
                self.add(key, amount)
            if not self.is_behind:
                _log.warning("usage.unwritten", error=str(error))
            self.is_behind = True
        else:
            self.is_behind = False
