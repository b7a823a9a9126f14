"""Today's use of spending budgets by people and channels, in the agent server's file.

People and channels are stored as pseudonyms. Earlier days are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date

from storage.db.database import Database
from storage.usage.usage import UsageAmount

_ADD = """
INSERT INTO spender_usage VALUES (:day, :tendril, :model, :channel, :person, :tokens, :cost)
ON CONFLICT (day, tendril, model, channel, person) DO UPDATE SET
    tokens = spender_usage.tokens + excluded.tokens, cost = spender_usage.cost + excluded.cost
"""


@dataclass(frozen=True, slots=True)
class SpenderKey:
    """The key of an amount: UTC day, tendril, model, and the pseudonyms of channel and person, ""
    where there is none."""

    day: date
    tendril: str
    model: str
    channel: str
    person: str


class SpenderUsage:
    """The amounts in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, amounts: Mapping[SpenderKey, UsageAmount]) -> None:
        """Add amounts to those stored, all in one transaction. Raises Unavailable."""
        rows = [
            asdict(key)
            | {"day": key.day.isoformat()}
            | {"tokens": amount.prompt + amount.completion, "cost": amount.cost}
            for key, amount in amounts.items()
        ]
        async with self._database.transaction() as db:
            await db.executemany(_ADD, rows)

    async def read(self, day: date) -> Sequence[tuple[SpenderKey, int, float]]:
        """Return the keys of a day, each with its tokens and their cost. Raises Unavailable."""
        rows = await self._database.fetch_all(
            "SELECT * FROM spender_usage WHERE day = ?", [day.isoformat()]
        )
        return [
            (
                SpenderKey(day, row["tendril"], row["model"], row["channel"], row["person"]),
                row["tokens"],
                row["cost"],
            )
            for row in rows
        ]

    async def forget_before(self, day: date) -> None:
        """Delete the amounts of all days before `day`. Raises Unavailable."""
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM spender_usage WHERE day < ?", [day.isoformat()])
