"""Work that is done later: rows that survive a crash, claimed by a worker under a lease.

A job is `pending` until a worker claims it, `running` while its lease lasts, and then `finish`; or
`waiting` for the job that it depends on. One whose attempt fails is pending again, later each time,
and `dead` after the last attempt; it is `fail` without any when it was cancelled, or when the
job that it waited for came to nothing. What is over is removed after a time.

Neither the payload nor the result of a job may hold what people have said: only where it stands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.connection import Dialect
from storage.db.database import AsyncConnection, Database, Row, from_micros, to_micros
from storage.db.errors import Conflict

LEASE = timedelta(minutes=30)
"""How long a claimed job is its worker's; one that runs longer counts as crashed."""

_KEPT_DONE = timedelta(hours=24)
_KEPT_FAILED = timedelta(hours=72)
_PRIORITY = 100

_ADD = """
INSERT INTO jobs (kind, payload, key, lane, priority, state, max_attempts, depends_on, created,
    run_at, finished, error)
VALUES (:kind, :payload, :key, :lane, :priority, :state, :max_attempts, :depends_on, :created,
    :run_at, :finished, :error)
ON CONFLICT (key) DO NOTHING RETURNING id"""

_CLAIM = """
UPDATE jobs SET state = 'running', attempts = attempts + 1, worker = :worker, lease = :lease
WHERE id = (
    SELECT id FROM jobs AS next
    WHERE state = 'pending' AND run_at <= :now
        AND kind IN (SELECT value FROM json_each(:kinds))
        AND (lane = '' OR NOT EXISTS (
            SELECT 1 FROM jobs AS other WHERE other.lane = next.lane AND other.state = 'running'))
    ORDER BY priority, run_at, id LIMIT 1 {lock})
RETURNING *"""
_LOCK = {Dialect.SQLITE: "", Dialect.POSTGRES: "FOR UPDATE SKIP LOCKED"}

# A job and all that depends on it, also over others.
_BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT CAST(? AS BIGINT) UNION SELECT jobs.id FROM jobs JOIN below ON depends_on = below.id)"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands. `attempts` counts those that have begun, the running one included."""

    id: int
    kind: str
    payload: Mapping[str, Any]
    state: str
    attempts: int
    max_attempts: int
    run_at: datetime
    lane: str = ""
    error: str = ""
    depends_on: int | None = None


class Jobs:
    """The jobs in a database file. `changed` is set whenever one was added or made free by us.

    `retry` is how long a job waits after its first failed attempt; the time doubles with each.
    `max_attempts` is how often a job that is added here may fail before it is dead.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        retry: timedelta = timedelta(seconds=30),
        max_attempts: int = 5,
    ) -> None:
        self._database = database
        self._now = now
        self._retry = retry
        self.max_attempts = max_attempts
        self.changed = asyncio.Event()

    async def add(
        self,
        kind: str,
        payload: Mapping[str, Any],
        *,
        key: str = "",
        lane: str = "",
        priority: int = _PRIORITY,
        run_at: datetime | None = None,
        depends_on: int | None = None,
    ) -> int:
        """Put a job in line and return its id; that of the first, if one with `key` is known.

        Of one `lane` a single job runs at a time. The lowest `priority` runs first. A job that
        depends on one that is not known, or came to nothing, fails at once. Raises Unavailable.
        """
        now = to_micros(self._now())
        async with self._database.transaction() as db:
            state, error = await _start(db, depends_on)
            row = {
                "kind": kind,
                "payload": json.dumps(dict(payload)),
                "key": key or None,
                "lane": lane,
                "priority": priority,
                "state": state,
                "max_attempts": self.max_attempts,
                "depends_on": depends_on,
                "created": now,
                "run_at": to_micros(run_at) if run_at else now,
                "finished": now if error else None,
                "error": error,
            }
            added = await _fetch_row(db, _ADD, row)
            known = added or await _fetch_row(db, "SELECT id FROM jobs WHERE key = ?", [key])
        assert known is not None
        self.changed.set()
        return int(known[0])

    async def claim(self, worker: str, kinds: Collection[str], now: datetime) -> Job | None:
        """Return the job of these kinds that is due and comes first: it is the worker's for
        `LEASE`."""
        values = {
            "worker": worker,
            "kinds": json.dumps(list(kinds)),
            "now": to_micros(now),
            "lease": to_micros(now + LEASE),
        }
        sql = _CLAIM.format(lock=_LOCK[self._database.dialect])
        while True:
            try:
                async with self._database.transaction(exclusive=False) as db:
                    row = await _fetch_row(db, sql, values)
            except Conflict:  # another worker has claimed one of the same lane in this moment
                continue
            return _job(row) if row else None

    async def finish(self, job: Job, result: object = None) -> bool:
        """Say that a claimed job is done: what waited for it is free. False: it was no longer the
        caller's."""
        async with self._database.transaction() as db:
            ended = await _finish(db, job, "done", self._now(), result=json.dumps(result))
            if ended:
                await db.execute(
                    "UPDATE jobs SET state = 'pending' WHERE depends_on = ? AND state = 'waiting'",
                    [job.id],
                )
        self.changed.set()
        return ended

    async def fail(self, job: Job, error: str) -> bool:
        """Say that the attempt failed: there is another, later, unless it was the last. False: the
        job was no longer the caller's."""
        now = self._now()
        async with self._database.transaction() as db:
            if job.attempts < job.max_attempts:
                again = now + self._retry * 2 ** (job.attempts - 1)
                return await _retry(db, job, again, error, attempts=job.attempts)
            ended = await _finish(db, job, "dead", now, error=error)
            if ended:
                await _fail_below(db, job.id, now)
            return ended

    async def postpone(self, job: Job, until: datetime) -> bool:
        """Give a claimed job back, as it cannot be done before `until`; it costs no attempt."""
        async with self._database.transaction() as db:
            return await _retry(db, job, until, job.error, attempts=job.attempts - 1)

    async def cancel(self, job_id: int) -> bool:
        """End a job that is not over, with all that waits for it; whether there was one."""
        now = self._now()
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "UPDATE jobs SET state = 'failed', finished = ?, error = 'cancelled'"
                " WHERE id = ? AND state IN ('pending', 'waiting', 'running')",
                [to_micros(now), job_id],
            )
            await _fail_below(db, job_id, now)
            return cursor.rowcount > 0

    async def retry(self, job_id: int) -> bool:
        """Put a job that came to nothing in line again, with all its attempts, and what failed
        because of it behind it; whether there was one. One that depends on another that came to
        nothing is not: that one is to be retried."""
        now = to_micros(self._now())
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "UPDATE jobs SET state = 'pending', attempts = 0, run_at = ?, finished = NULL,"
                " error = '' WHERE id = ? AND state IN ('failed', 'dead') AND (depends_on IS NULL"
                " OR depends_on IN (SELECT id FROM jobs WHERE state = 'done'))",
                [now, job_id],
            )
            if cursor.rowcount:
                await db.execute(
                    f"{_BELOW} UPDATE jobs SET state = 'waiting', finished = NULL, error = ''"
                    " WHERE state = 'failed' AND id != ? AND id IN (SELECT id FROM below)",
                    [job_id, job_id],
                )
        self.changed.set()
        return cursor.rowcount > 0

    async def drop(self, job_id: int) -> bool:
        """Remove a job, whatever its state, and end what waits for it; whether there was one."""
        now = self._now()
        async with self._database.transaction() as db:
            await _fail_below(db, job_id, now)
            cursor = await db.execute("DELETE FROM jobs WHERE id = ?", [job_id])
            return cursor.rowcount > 0

    async def all(self, *states: str) -> Sequence[Job]:
        """Return the jobs in these states (every one, if none is named), in order of arrival."""
        rows = await self._database.fetch_all(
            "SELECT * FROM jobs WHERE ?1 = '[]' OR state IN (SELECT value FROM json_each(?1))"
            " ORDER BY id",
            [json.dumps(states)],
        )
        return [_job(row) for row in rows]

    async def result(self, number: int) -> Any:
        """Return what the handler of a job returned, None as long as it is not done."""
        row = await self._database.fetch_one("SELECT result FROM jobs WHERE id = ?", [number])
        return json.loads(row["result"]) if row and row["result"] else None

    async def next_due(self, kinds: Collection[str], after: datetime) -> datetime | None:
        """Return when the first pending job of these kinds is due that was not yet due at
        `after`."""
        row = await self._database.fetch_one(
            "SELECT min(run_at) AS due FROM jobs WHERE state = 'pending' AND run_at > ?"
            " AND kind IN (SELECT value FROM json_each(?))",
            [to_micros(after), json.dumps(list(kinds))],
        )
        return from_micros(row["due"]) if row and row["due"] is not None else None

    async def recover(self, worker: str) -> None:
        """Take back whatever a worker runs: to be called by the one who has this name alone,
        before it claims the first."""
        await self._take_back(datetime.max.replace(tzinfo=UTC), worker)

    async def sweep(self, now: datetime) -> None:
        """Take back jobs whose lease is over, and remove those that have been over for long."""
        await self._take_back(now, None)
        async with self._database.transaction() as db:
            await db.execute(
                "DELETE FROM jobs WHERE state = 'done' AND finished <= ?"
                " OR state IN ('failed', 'dead') AND finished <= ?",
                [to_micros(now - _KEPT_DONE), to_micros(now - _KEPT_FAILED)],
            )

    async def _take_back(self, before: datetime, worker: str | None) -> None:
        """A job whose worker crashed has failed an attempt; whoever it crashes each time, dies."""
        rows = await self._database.fetch_all(
            "SELECT * FROM jobs WHERE state = 'running' AND lease <= ?1"
            " AND (CAST(?2 AS TEXT) IS NULL OR worker = ?2)",
            [to_micros(before), worker],
        )
        for job in map(_job, rows):
            await self.fail(job, "its worker crashed")


async def _start(db: AsyncConnection, depends_on: int | None) -> tuple[str, str]:
    """Return the state in which a job begins, and why it is over already."""
    if depends_on is None:
        return "pending", ""
    parent = await _fetch_row(db, "SELECT state FROM jobs WHERE id = ?", [depends_on])
    state = parent[0] if parent else "unknown"
    if state in ("unknown", "failed", "dead"):
        return "failed", f"the job that it depends on is {state}"
    return ("pending" if state == "done" else "waiting"), ""


async def _fetch_row(
    db: AsyncConnection, sql: str, values: Mapping[str, Any] | Sequence[Any]
) -> Row | None:
    async with db.execute(sql, values) as cursor:
        row: Row | None = await cursor.fetchone()
        return row


async def _finish(
    db: AsyncConnection,
    job: Job,
    state: str,
    now: datetime,
    *,
    result: str | None = None,
    error: str = "",
) -> bool:
    cursor = await db.execute(
        "UPDATE jobs SET state = ?, finished = ?, result = ?, error = ?, lease = NULL"
        " WHERE id = ? AND state = 'running' AND attempts = ?",
        [state, to_micros(now), result, error, job.id, job.attempts],
    )
    return cursor.rowcount > 0


async def _retry(
    db: AsyncConnection, job: Job, until: datetime, error: str, *, attempts: int
) -> bool:
    cursor = await db.execute(
        "UPDATE jobs SET state = 'pending', run_at = ?, error = ?, attempts = ?, lease = NULL"
        " WHERE id = ? AND state = 'running' AND attempts = ?",
        [to_micros(until), error, attempts, job.id, job.attempts],
    )
    return cursor.rowcount > 0


async def _fail_below(db: AsyncConnection, job_id: int, now: datetime) -> None:
    """Fail whatever waits for a job that came to nothing."""
    await db.execute(
        f"{_BELOW} UPDATE jobs SET state = 'failed', finished = ?,"
        " error = 'the job that it depends on came to nothing'"
        " WHERE state = 'waiting' AND id IN (SELECT id FROM below)",
        [job_id, to_micros(now)],
    )


def _job(row: Row) -> Job:
    return Job(
        row["id"],
        row["kind"],
        json.loads(row["payload"]),
        row["state"],
        row["attempts"],
        row["max_attempts"],
        from_micros(row["run_at"]),
        row["lane"],
        row["error"],
        row["depends_on"],
    )
