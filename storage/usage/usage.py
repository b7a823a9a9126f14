"""Token usage of each tendril, by model and day, in the agent server's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date

from storage.db.database import Database

_ADD = """
INSERT INTO usage VALUES (:day, :tendril, :model, :requests, :prompt, :cached, :completion, :cost)
ON CONFLICT (day, tendril, model) DO UPDATE SET
    requests = usage.requests + excluded.requests, prompt = usage.prompt + excluded.prompt,
    cached = usage.cached + excluded.cached, completion = usage.completion + excluded.completion,
    cost = usage.cost + excluded.cost
"""


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """The tendril, model and UTC day of some use."""

    day: date
    tendril: str
    model: str


@dataclass(frozen=True, slots=True)
class UsageAmount:
    """Requests and tokens; `cached` of the prompt's were in the engine's cache already.

    `cost` is in the currency of the price table.
    """

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: float = 0.0

    def __add__(self, other: UsageAmount) -> UsageAmount:
        """Both together."""
        return UsageAmount(
            self.requests + other.requests,
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.cost + other.cost,
        )


class UsageTable:
    """The amounts in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, amounts: Mapping[UsageKey, UsageAmount]) -> None:
        """Add to what is there, all or nothing. Raises Unavailable."""
        rows = [
            {
                "day": usage_key.day.isoformat(),
                "tendril": usage_key.tendril,
                "model": usage_key.model,
            }
            | asdict(amount)
            for usage_key, amount in amounts.items()
        ]
        async with self._database.transaction() as db:
            await db.executemany(_ADD, rows)

    async def read(
        self, since: date, until: date, tendril: str | None = None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        """Return the amounts of the days from `since` to `until`, in order. Raises Unavailable."""
        sql = "SELECT * FROM usage WHERE day BETWEEN ? AND ?"
        values = [since.isoformat(), until.isoformat()]
        if tendril is not None:
            sql += " AND tendril = ?"
            values.append(tendril)
        rows = await self._database.fetch_all(f"{sql} ORDER BY day, tendril, model", values)
        return [
            (
                UsageKey(date.fromisoformat(row["day"]), row["tendril"], row["model"]),
                UsageAmount(*(row[name] for name in UsageAmount.__slots__)),
            )
            for row in rows
        ]
