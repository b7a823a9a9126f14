"""The audit log: what admins, or the model on their behalf, have changed, and why."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from storage.chat_log.event import Place
from storage.db.database import Connection, Repository, from_micros, to_micros, writes

FORGOTTEN = "(forgotten)"
"""Placeholder for the name of a person who was forgotten."""

_PUNCTUATION = ".,:;?!'\"()"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry of the audit log: `actor` did `action` to `target` in `place`."""

    place: Place
    actor: str
    action: str
    target: str
    reason: str = ""
    time: datetime | None = None
    """The time of the action; set when the entry is stored."""


class AuditLog(Repository):
    """The audit log, to which rows are only added; only the names of the forgotten are removed."""

    @writes
    def add(self, db: Connection, entry: AuditEntry) -> None:
        """Store an entry with the current time."""
        insert_entry(db, entry)

    async def latest(self, limit: int = 50) -> list[AuditEntry]:
        """Return the newest `limit` entries, oldest first."""
        sql = "SELECT * FROM audit ORDER BY rowid DESC LIMIT ?"
        rows = await self._database.fetch_all(sql, [limit])
        return [
            AuditEntry(
                Place(row["network"], row["channel"]),
                *(row["actor"], row["action"], row["target"], row["reason"]),
                from_micros(row["time"]),
            )
            for row in reversed(rows)
        ]

    async def forget(
        self, network: str | None, names: Collection[str], hosts: Collection[str]
    ) -> None:
        """Remove the names of people from what was done to them, on one network or (None) on all.

        That it was done, by whom and when, stays. A target or a reason that has one of their nicks,
        or a mask with one of their nicks or hosts, is replaced by `FORGOTTEN`.
        """
        nicks, masked = {name.lower() for name in names}, {host.lower() for host in hosts}

        def is_about_them(text: str) -> bool:
            for word in text.lower().split():
                nick, _, rest = word.partition("!")
                _, at, host = (rest or word).partition("@")
                if (at and host in masked) or nick.strip(_PUNCTUATION) in nicks:
                    return True
            return False

        rows = await self._database.fetch_all(
            "SELECT rowid, target, reason FROM audit"
            " WHERE CAST(?1 AS TEXT) IS NULL OR network = ?1",
            [network],
        )
        changed = []
        for row in rows:
            texts = row["target"], row["reason"]
            nameless = [FORGOTTEN if is_about_them(text) else text for text in texts]
            if nameless != [*texts]:
                changed.append([*nameless, row["rowid"]])
        if changed:
            sql = "UPDATE audit SET target = ?, reason = ? WHERE rowid = ?"
            await self._database.executemany(sql, changed)


def insert_entry(db: Connection, entry: AuditEntry) -> None:
    """Store an entry with the current time, inside a transaction."""
    db.execute(
        "INSERT INTO audit (time, network, channel, actor, action, target, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            *(to_micros(datetime.now(UTC)), entry.place.network, entry.place.channel),
            *(entry.actor, entry.action, entry.target, entry.reason),
        ],
    )
