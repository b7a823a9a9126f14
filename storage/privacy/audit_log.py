"""The audit log: what admins, and the model in their name, have changed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from storage.chat_log.event import Place
from storage.db.database import Database, from_micros, to_micros


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log: `actor` had `action` done to `target` in `place`."""

    place: Place
    actor: str
    action: str
    target: str
    reason: str = ""
    time: datetime | None = None
    """When; set by the audit."""


class AuditLog:
    """The deeds in a database file; rows are only ever added."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: AuditEntry) -> None:
        """Write down a deed of this moment."""
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO audit (time, network, channel, actor, action, target, reason)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    *(to_micros(datetime.now(UTC)), entry.place.network, entry.place.channel),
                    *(entry.actor, entry.action, entry.target, entry.reason),
                ],
            )

    async def latest(self, limit: int = 50) -> list[AuditEntry]:
        """Return the newest deeds, oldest first."""
        rows = await self._database.fetch_all(
            "SELECT * FROM audit ORDER BY rowid DESC LIMIT ?", [limit]
        )
        return [
            AuditEntry(
                Place(row["network"], row["channel"]),
                *(row["actor"], row["action"], row["target"], row["reason"]),
                from_micros(row["time"]),
            )
            for row in reversed(rows)
        ]
