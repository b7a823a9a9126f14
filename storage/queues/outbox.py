"""Messages on their way to a channel, from one tendril to another, which is there.

A row stays until the message has been said, so that neither side's restart loses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from storage.chat_log.event import Place
from storage.db.database import Database, to_micros


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message for a place."""

    id: int
    place: Place
    text: str


class Outbox:
    """The messages in a database file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, key: str, place: Place, text: str, *, tendril: str = "irc") -> None:
        """Hand a message to a tendril; the same `key` again is the same message and is not
        repeated. A place without a network is on the first one of that tendril."""
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO outbox (key, tendril, network, channel, text, time)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [key, tendril, place.network, place.channel, text, to_micros(datetime.now(UTC))],
            )

    async def list_unsent(self, tendril: str = "irc") -> Sequence[OutgoingMessage]:
        """Return the messages for a tendril that have not been said, oldest first."""
        rows = await self._database.fetch_all(
            "SELECT * FROM outbox WHERE sent IS NULL AND tendril = ? ORDER BY id", [tendril]
        )
        return [
            OutgoingMessage(row["id"], Place(row["network"], row["channel"]), row["text"])
            for row in rows
        ]

    async def mark_sent(self, message: OutgoingMessage) -> None:
        """Remember that a message has been said; its text is not kept."""
        async with self._database.transaction() as db:
            await db.execute(
                "UPDATE outbox SET sent = ?, text = '' WHERE id = ?",
                [to_micros(datetime.now(UTC)), message.id],
            )
