"""Tokens that a tendril has spent, by purpose: on answers, and on each kind of background work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date

from storage.connection import Connection, adding
from storage.db.database import Database
from storage.usage.usage import UsageAmount

_KEY = ("day", "room", "conversation", "purpose")
_AMOUNTS = ("requests", "prompt", "cached", "completion")
_ADDING = adding("spending", _KEY, _AMOUNTS)
_ADD = f"INSERT INTO spending VALUES (:{', :'.join((*_KEY, *_AMOUNTS))}) {_ADDING}"
_SUM = ", ".join(f"sum({each})" for each in _AMOUNTS)
_NAMELESS = f"""
INSERT INTO spending SELECT day, '', '', purpose, {_SUM} FROM spending
WHERE (room, conversation) != ('', '') AND {{which}} GROUP BY day, purpose {_ADDING}"""


@dataclass(frozen=True, slots=True)
class TokenSpend:
    """The key of an amount: UTC day, room, conversation and purpose."""

    day: date
    room: str
    conversation: str
    purpose: str


class Spending:
    """The amounts in a tendril's file. Their cost is computed by the agent server only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, amounts: Mapping[TokenSpend, UsageAmount]) -> None:
        """Add amounts to those stored, all in one transaction. Raises Unavailable."""
        rows = [
            asdict(expense) | {"day": expense.day.isoformat()} | asdict(amount)
            for expense, amount in amounts.items()
        ]
        await self._database.executemany(_ADD, rows)

    async def by_purpose(
        self, since: date, until: date, *, room: str | None = None, conversation: str | None = None
    ) -> dict[str, UsageAmount]:
        """Return what was spent on each purpose from `since` to `until`, both inclusive.

        The sums are over everything, a room or a conversation. Raises Unavailable.
        """
        rows = await self._database.fetch_all(
            f"SELECT purpose, {_SUM} FROM spending WHERE day BETWEEN :since AND :until"
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

    async def forget(self, conversation: str) -> None:
        """Anonymise the amounts of a conversation. Raises Unavailable."""
        await self._make_nameless("conversation = :value", conversation)

    async def forget_names(self) -> None:
        """Anonymise the amounts of all conversations and rooms. Raises Unavailable."""
        await self._make_nameless(":value = 1", 1)

    async def forget_before(self, day: date) -> None:
        """Anonymise the amounts of all days before `day`. Raises Unavailable."""
        await self._make_nameless("day < :value", day.isoformat())

    async def _make_nameless(self, which: str, value: str | int) -> None:
        # Sums by day and purpose stay, so that totals do not change; names may identify people.
        delete = f"DELETE FROM spending WHERE (room, conversation) != ('', '') AND {which}"

        def anonymise(db: Connection) -> None:
            db.execute(_NAMELESS.format(which=which), {"value": value})
            db.execute(delete, {"value": value})

        await self._database.write(anonymise)
