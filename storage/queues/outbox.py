"""The outbox: messages from one tendril that another one is to say on a channel.

A message is pending until it has been said, so that neither side's restart loses it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from storage.chat_log.event import Place
from storage.db.database import Database, to_micros


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A pending message, the place where to say it, and the ids of the log lines that it
    repeats."""

    id: int
    place: Place
    text: str
    quotes: frozenset[int] = frozenset()


class Outbox:
    """The messages in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self,
        key: str,
        place: Place,
        text: str,
        *,
        tendril: str = "irc",
        quotes: Collection[int] = (),
    ) -> None:
        """Add a message for a tendril, unless there ever was one with this idempotency `key`. A
        place without a network is on the tendril's first one."""
        values = [key, tendril, place.network, place.channel, text, json.dumps(list(quotes))]
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO outbox (key, tendril, network, channel, text, quotes, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [*values, to_micros(datetime.now(UTC))],
            )

    async def list_unsent(self, tendril: str = "irc") -> Sequence[OutgoingMessage]:
        """Return a tendril's pending messages, oldest first."""
        rows = await self._database.fetch_all(
            "SELECT * FROM outbox WHERE sent IS NULL AND tendril = ? ORDER BY id", [tendril]
        )
        return [
            OutgoingMessage(
                row["id"],
                Place(row["network"], row["channel"]),
                row["text"],
                frozenset(json.loads(row["quotes"])),
            )
            for row in rows
        ]

    async def mark_sent(self, message: OutgoingMessage) -> None:
        """Mark a message as said. Its row is kept for the key alone."""
        async with self._database.transaction() as db:
            await db.execute(
                "UPDATE outbox SET sent = ?, text = '', quotes = '[]' WHERE id = ?",
                [to_micros(datetime.now(UTC)), message.id],
            )
