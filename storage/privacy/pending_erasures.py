"""Erasures that have begun and are not finished: of whom, of which data, with which steps left; and
the lock that lets one process at a time carry them out."""

from __future__ import annotations

import asyncio
import fcntl
import json
import sqlite3
import time
from array import array
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.chat_log.event import Place
from storage.connection import Dialect
from storage.db.database import Database, Row, to_micros
from storage.db.errors import Unavailable
from storage.privacy.audit_log import AuditEntry, insert_entry

_ADD = """
INSERT INTO erasures (time, actor, network, person, names, hosts, events, replies, steps,
    removed_events)"""
_NAMELESS = """
UPDATE erasures SET person = '', names = '[]', hosts = '[]', events = ?1, replies = ?1
WHERE id = ?2"""
_LOCK_TIMEOUT = 60.0  # seconds to wait for another process
_POLL_INTERVAL = 0.1  # seconds between two attempts to take the lock
_TRY_ADVISORY = (
    "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || ' erasures', 0))"
)


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


class PendingErasures:
    """The table of pending erasures in a database. All methods raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, erasure: PendingErasure) -> int:
        """Record an erasure durably, before its first step; return its id."""
        values = [
            to_micros(datetime.now(UTC)),
            erasure.actor,
            erasure.network,
            erasure.person,
            json.dumps(sorted(erasure.names)),
            json.dumps(sorted(erasure.hosts)),
            _pack(erasure.events),
            _pack(erasure.replies),
            json.dumps(erasure.steps),
            erasure.removed_events,
        ]
        async with (
            self._database.transaction() as db,
            db.execute(
                f"{_ADD} VALUES ({', '.join('?' * len(values))}) RETURNING id", values
            ) as added,
        ):
            return int((await added.fetchone())[0])

    async def list_all(self) -> list[PendingErasure]:
        """Return all pending erasures, oldest first."""
        rows = await self._database.fetch_all("SELECT * FROM erasures ORDER BY id")
        return [_erasure(row) for row in rows]

    async def tick_off(self, erasure_id: int, step: str) -> None:
        """Record that a step is done."""
        async with self._database.transaction() as db:
            async with db.execute("SELECT steps FROM erasures WHERE id = ?", [erasure_id]) as found:
                row = await found.fetchone()
            steps = json.loads(row[0]) if row else []
            await db.execute(
                "UPDATE erasures SET steps = ? WHERE id = ?",
                [json.dumps([each for each in steps if each != step]), erasure_id],
            )

    async def make_nameless(self, erasure_id: int) -> None:
        """Remove the person's names and ids from the row; the remaining work, rewriting the file,
        needs none of them."""
        async with self._database.transaction() as db:
            await db.execute(_NAMELESS, [b"", erasure_id])

    async def finish(self, erasure: PendingErasure) -> None:
        """Remove the row, and record in the audit log how much was removed, but not whose it was.

        Does nothing if another process has removed it already.
        """
        removed = f"{erasure.removed_events} events"
        entry = AuditEntry(Place(erasure.network or "", ""), erasure.actor, "forget", removed)
        async with self._database.transaction() as db:
            cursor = await db.execute("DELETE FROM erasures WHERE id = ?", [erasure.id])
            if cursor.rowcount:
                await insert_entry(db, entry)


@asynccontextmanager
async def erasure_lock(
    database: Database, data: Path, *, patience: float = _LOCK_TIMEOUT
) -> AsyncIterator[None]:
    """Hold the lock on the erasures of the log in `database`.

    With SQLite it is an flock in the folder `data`, which the kernel releases however a process
    ends. With PostgreSQL it is an advisory lock, because the processes may be on several machines;
    the server releases it when the connection ends. Raises Unavailable when another process still
    holds it after `patience` seconds.
    """
    attempts = _attempts(patience)
    if database.dialect is Dialect.POSTGRES:
        async for _ in attempts:
            # The transaction only holds the lock: it writes nothing, and has no snapshot that would
            # keep VACUUM from removing rows. Who waits has none: whoever holds the lock needs
            # further connections of the pool, which has few.
            async with database.transaction(exclusive=False) as connection:
                # The server may be set to end transactions that are idle, and an erasure may take
                # minutes.
                await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                async with connection.execute(_TRY_ADVISORY) as cursor:
                    is_locked = (await cursor.fetchone())[0]
                if is_locked:
                    yield
                    return
    path = data / "run" / "erasure.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise Unavailable(f"{path}: cannot be opened: {error.strerror}") from error
    with file:  # closing it releases the lock
        async for _ in attempts:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield
            return


async def _attempts(patience: float) -> AsyncIterator[None]:
    """Yield at once and then every `_POLL_INTERVAL`. Raises Unavailable after `patience`."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        yield
        await asyncio.sleep(_POLL_INTERVAL)
    raise Unavailable("another process is still carrying out erasures")


def has_pending_erasures(path: Path) -> bool:
    """Return True if the log in a file has a pending erasure, False if the file cannot be read.

    Unlike `Database.open` it neither creates nor migrates the file.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            return file.execute("SELECT 1 FROM erasures LIMIT 1").fetchone() is not None
    except sqlite3.Error:
        return False


def _pack(ids: Collection[int]) -> bytes:
    return array("q", sorted(ids)).tobytes()


def _erasure(row: Row) -> PendingErasure:
    return PendingErasure(
        row["actor"],
        row["network"],
        row["person"],
        frozenset(json.loads(row["names"])),
        frozenset(json.loads(row["hosts"])),
        frozenset(array("q", row["events"])),
        frozenset(array("q", row["replies"])),
        tuple(json.loads(row["steps"])),
        row["removed_events"],
        row["id"],
    )
