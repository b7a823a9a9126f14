"""Erasures that have begun and are not finished: of whom, of which data, with which steps left; and
the lock that lets one process at a time carry them out."""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from storage.chat_log.event import Place
from storage.db.address import PostgresSchema
from storage.db.database import Connection, Database, Repository, to_micros, writes
from storage.db.process_lock import wait_for_lock
from storage.privacy.audit_log import AuditEntry, insert_entry

_ADD = """
INSERT INTO erasures (time, actor, network, person, names, hosts, events, replies, steps,
    removed_events)"""
_NAMELESS = """
UPDATE erasures SET person = '', names = '[]', hosts = '[]', events = ?1, replies = ?1
WHERE id = ?2"""
_LOCK_TIMEOUT = 60.0  # seconds to wait for another process
_POLL_INTERVAL = 0.1  # seconds between two attempts to take the lock


@dataclass(frozen=True, slots=True)
class PendingErasure:
    """An erasure that is not finished.

    `person` is a JSON object, or empty once only the file is left to be rewritten and the row names
    nobody any more. `events` are the ids of the person's events, `replies` those of the bot's lines
    to remove with them. `steps` are the steps not yet done.
    """

    actor: str
    network: str | None
    person: str
    names: frozenset[str]
    hosts: frozenset[str]
    events: frozenset[int]
    replies: frozenset[int]
    steps: tuple[str, ...]
    removed_events: int = 0
    id: int = 0


class PendingErasures(Repository):
    """The table of pending erasures in a database. All methods raise Unavailable."""

    @writes
    def add(self, db: Connection, erasure: PendingErasure) -> int:
        """Record an erasure durably, before its first step; return its id."""
        names, hosts = json.dumps(sorted(erasure.names)), json.dumps(sorted(erasure.hosts))
        values = [
            *(to_micros(datetime.now(UTC)), erasure.actor, erasure.network, erasure.person),
            *(names, hosts, _pack(erasure.events), _pack(erasure.replies)),
            *(json.dumps(erasure.steps), erasure.removed_events),
        ]
        sql = f"{_ADD} VALUES ({', '.join('?' * len(values))}) RETURNING id"
        return int(db.execute(sql, values).fetchone()[0])

    async def list_all(self) -> list[PendingErasure]:
        """Return all pending erasures, oldest first."""
        rows = await self._database.fetch_all("SELECT * FROM erasures ORDER BY id")
        return [
            PendingErasure(
                *(row["actor"], row["network"], row["person"]),
                frozenset(json.loads(row["names"])),
                frozenset(json.loads(row["hosts"])),
                frozenset(array("q", row["events"])),
                frozenset(array("q", row["replies"])),
                tuple(json.loads(row["steps"])),
                row["removed_events"],
                row["id"],
            )
            for row in rows
        ]

    async def tick_off(self, erasure: PendingErasure, step: str) -> PendingErasure:
        """Record that a step is done; return what is left of the erasure."""
        left = replace(erasure, steps=tuple(each for each in erasure.steps if each != step))
        sql = "UPDATE erasures SET steps = ? WHERE id = ?"
        await self._database.execute(sql, [json.dumps(left.steps), erasure.id])
        return left

    async def make_nameless(self, erasure_id: int) -> None:
        """Remove the person's names and ids, which rewriting the file does not need."""
        await self._database.execute(_NAMELESS, [b"", erasure_id])

    @writes
    def finish(self, db: Connection, erasure: PendingErasure) -> None:
        """Remove the row, and record in the audit log how much was removed, but not whose it was.

        Does nothing if another process has removed it already.
        """
        if db.execute("DELETE FROM erasures WHERE id = ?", [erasure.id]).rowcount:
            place, removed = Place(erasure.network or "", ""), f"{erasure.removed_events} events"
            insert_entry(db, AuditEntry(place, erasure.actor, "forget", removed))


@asynccontextmanager
async def erasure_lock(
    database: Database, data: Path, *, patience: float = _LOCK_TIMEOUT
) -> AsyncIterator[None]:
    """Hold the lock on the erasures of the log in `database`.

    It is that of a file in the folder `data` or, as processes may be on several machines, an
    advisory lock of PostgreSQL, which ends with the connection. Raises Unavailable when another
    process still holds it after `patience` seconds.
    """
    if isinstance(database.address, PostgresSchema):
        from storage.db.postgres.backend import session_lock  # needs the extra

        async with session_lock(database.address, " erasures", patience):
            yield
        return
    async with wait_for_lock(data / "run" / "erasure.lock", _POLL_INTERVAL, patience):
        yield


def _pack(ids: Collection[int]) -> bytes:
    return array("q", sorted(ids)).tobytes()
