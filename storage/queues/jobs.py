"""A durable job queue: rows that survive a crash, claimed by workers under a lease.

A job is `pending` until a worker claims it, `running` while the worker has the lease, and then
`done`. It is `waiting` while the job that it depends on is not done. A job whose attempt fails is
pending again after a backoff that doubles each time, and `dead` after the last attempt. It is
`failed` if it was cancelled, or if the job that it depends on is dead, failed or unknown. One that
is `paused` becomes pending when it is resumed. Jobs that are over are deleted after a time.

Neither payload nor result may contain what people have said, only references to it: forgetting a
person does not search them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.connection import Connection, Dialect
from storage.db.database import Database, Repository, Row, from_micros, to_micros, writes
from storage.db.errors import Conflict

LEASE = timedelta(minutes=30)
"""The time for which a worker owns a job that it has claimed. If it takes longer, it counts as
crashed."""

OPEN_STATES = ("pending", "paused", "waiting", "running")
FAILED_STATES = ("failed", "dead")
_KEPT_DONE = timedelta(hours=24)
_KEPT_FAILED = timedelta(hours=72)
_DEFAULT_PRIORITY = 100

_ADD = """
INSERT INTO jobs (kind, payload, key, lane, priority, state, max_attempts, depends_on, created,
    run_at, finished, error)
VALUES (:kind, :payload, :key, :lane, :priority, :state, :max_attempts, :depends_on, :created,
    :run_at, :finished, :error)
ON CONFLICT (key) DO NOTHING RETURNING id"""

# One statement, so that SQLite's write lock makes it atomic. In PostgreSQL claims run beside one
# another: rows that another claim has locked are skipped, and the unique index `jobs_lane` allows
# only one running job of a lane, so that the slower of two claims ends in a Conflict.
_CLAIM = """
UPDATE jobs SET state = 'running', attempts = attempts + 1, claims = claims + 1,
    worker = :worker, lease = :lease
WHERE id = (
    SELECT id FROM jobs AS next
    WHERE state = 'pending' AND run_at <= :now
        AND kind IN (SELECT value FROM json_each(:kinds))
        AND (lane = '' OR NOT EXISTS (
            SELECT 1 FROM jobs AS other WHERE other.lane = next.lane AND other.state = 'running'))
    ORDER BY priority, run_at, id LIMIT 1 {lock})
RETURNING *"""
_LOCK = {Dialect.SQLITE: "", Dialect.POSTGRES: "FOR UPDATE SKIP LOCKED"}

# A job and all that depend on it, directly or indirectly.
_BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT CAST(? AS BIGINT) UNION SELECT jobs.id FROM jobs JOIN below ON depends_on = below.id)"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was read; `attempts` counts those that have begun. `claims` is the fencing token
    of whoever has claimed it: it grows with each claim."""

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
    claims: int = 0


class Jobs(Repository):
    """The jobs in a database file. `changed` is set when this process may have made one runnable.

    `retry` is the backoff after a job's first failed attempt; it doubles with each further one.
    `max_attempts` is the number of failed attempts after which a job that is added here is dead.
    """

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        retry: timedelta = timedelta(seconds=30),
        max_attempts: int = 5,
    ) -> None:
        super().__init__(database)
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
        priority: int = _DEFAULT_PRIORITY,
        run_at: datetime | None = None,
        depends_on: int | None = None,
    ) -> int:
        """Add a job and return its id, or that of an existing job with the same idempotency `key`.

        Of the jobs in one `lane` only one runs at a time. The lowest `priority` runs first. A job
        that depends on an unknown, failed or dead one fails at once. Raises Unavailable.
        """
        now = to_micros(self._now())
        row = {
            "kind": kind,
            "payload": json.dumps(dict(payload)),
            "key": key or None,
            "lane": lane,
            "priority": priority,
            "max_attempts": self.max_attempts,
            "depends_on": depends_on,
            "created": now,
            "run_at": to_micros(run_at) if run_at else now,
        }

        def insert(db: Connection) -> int:
            state, error = "pending", ""
            if depends_on is not None:
                parent = db.execute("SELECT state FROM jobs WHERE id = ?", [depends_on]).fetchone()
                found = parent[0] if parent else "unknown"
                if found in ("unknown", "failed", "dead"):
                    state, error = "failed", f"the job that it depends on is {found}"
                elif found != "done":
                    state = "waiting"
            ended = {"state": state, "error": error, "finished": now if error else None}
            added = db.execute(_ADD, row | ended).fetchone()
            if added is None:
                added = db.execute("SELECT id FROM jobs WHERE key = ?", [key]).fetchone()
            return int(added[0])

        job_id = await self._database.write(insert)
        self.changed.set()
        return job_id

    async def claim(self, worker: str, kinds: Collection[str], now: datetime) -> Job | None:
        """Claim the next due job of these kinds for `LEASE`, and return it, or None."""
        values = {
            "worker": worker,
            "kinds": json.dumps(list(kinds)),
            "now": to_micros(now),
            "lease": to_micros(now + LEASE),
        }
        sql = _CLAIM.format(lock=_LOCK[self._database.dialect])
        while True:
            try:
                row = await self._database.write(
                    lambda db: db.execute(sql, values).fetchone(), exclusive=False
                )
            except Conflict:  # another worker has just claimed a job of the same lane
                continue
            return _job(row) if row else None

    async def finish(self, job: Job, result: object = None) -> bool:
        """Mark a claimed job as done, and those that wait for it as pending. Return False if it no
        longer was the caller's."""
        now = to_micros(self._now())

        def end(db: Connection) -> bool:
            values = {"result": json.dumps(result), "error": ""}
            ended = _release(db, job, state="done", finished=now, **values)
            if ended:
                sql = "UPDATE jobs SET state = 'pending' WHERE depends_on = ? AND state = 'waiting'"
                db.execute(sql, [job.id])
            return ended

        ended = await self._database.write(end)
        self.changed.set()
        return ended

    @writes
    def fail(self, db: Connection, job: Job, error: str) -> bool:
        """End an attempt that failed: the job is retried after its backoff, or dead after the last
        attempt. Return False if the job no longer was the caller's."""
        now = self._now()
        if job.attempts < job.max_attempts:
            again = to_micros(now + self._retry * 2 ** (job.attempts - 1))
            return _release(db, job, state="pending", run_at=again, error=error)
        ended = _release(db, job, state="dead", finished=to_micros(now), error=error)
        if ended:
            _fail_below(db, job.id, now)
        return ended

    @writes
    def postpone(self, db: Connection, job: Job, until: datetime) -> bool:
        """Give back a claimed job that cannot be done before `until`, at no cost of an attempt.
        Return False if the job no longer was the caller's."""
        attempts = job.attempts - 1
        return _release(db, job, state="pending", run_at=to_micros(until), attempts=attempts)

    @writes
    def cancel(self, db: Connection, job_id: int) -> bool:
        """Cancel a job that is not over, and fail all that wait for it; return False if there is no
        such job. The handler of a running job is not stopped, but its result is void."""
        now = self._now()
        cursor = db.execute(
            "UPDATE jobs SET state = 'failed', finished = ?, error = 'cancelled'"
            " WHERE id = ? AND state IN ('pending', 'paused', 'waiting', 'running')",
            [to_micros(now), job_id],
        )
        _fail_below(db, job_id, now)
        return cursor.rowcount > 0

    async def retry(self, job_id: int) -> bool:
        """Make a failed or dead job pending again, with all its attempts, and let the jobs that
        failed with it wait for it again; return False if there is no such job. A job whose parent
        failed is not retried: retry the parent."""

        def renew(db: Connection) -> bool:
            cursor = db.execute(
                "UPDATE jobs SET state = 'pending', attempts = 0, run_at = ?, finished = NULL,"
                " error = '' WHERE id = ? AND state IN ('failed', 'dead') AND (depends_on IS NULL"
                " OR depends_on IN (SELECT id FROM jobs WHERE state = 'done'))",
                [to_micros(self._now()), job_id],
            )
            if cursor.rowcount:
                db.execute(
                    f"{_BELOW} UPDATE jobs SET state = 'waiting', finished = NULL, error = ''"
                    " WHERE state = 'failed' AND id != ? AND id IN (SELECT id FROM below)",
                    [job_id, job_id],
                )
            return cursor.rowcount > 0

        found = await self._database.write(renew)
        self.changed.set()
        return found

    async def pause(self, job_id: int) -> bool:
        """Pause a pending job; return False if there is no such job."""
        sql = "UPDATE jobs SET state = 'paused' WHERE id = ? AND state = 'pending'"
        return await self._database.execute(sql, [job_id]) > 0

    async def resume(self, job_id: int) -> bool:
        """Have a paused job, or one not yet due, run as soon as it can; False if there is none."""
        found = await self._database.execute(
            "UPDATE jobs SET state = 'pending', run_at = ? WHERE id = ?"
            " AND state IN ('paused', 'pending')",
            [to_micros(self._now()), job_id],
        )
        self.changed.set()
        return found > 0

    @writes
    def drop(self, db: Connection, job_id: int) -> bool:
        """Delete a job in any state, and fail all that wait for it; False if there is none."""
        _fail_below(db, job_id, self._now())
        return db.execute("DELETE FROM jobs WHERE id = ?", [job_id]).rowcount > 0

    async def all(self, *states: str) -> Sequence[Job]:
        """Return the jobs in these states (every one, if none is named), in order of arrival."""
        rows = await self._database.fetch_all(
            "SELECT * FROM jobs WHERE ?1 = '[]' OR state IN (SELECT value FROM json_each(?1))"
            " ORDER BY id",
            [json.dumps(states)],
        )
        return [_job(row) for row in rows]

    async def result(self, number: int) -> Any:
        """Return the result of a job, None as long as it is not done."""
        row = await self._database.fetch_one("SELECT result FROM jobs WHERE id = ?", [number])
        return json.loads(row["result"]) if row and row["result"] else None

    async def next_due(self, kinds: Collection[str], after: datetime) -> datetime | None:
        """Return the earliest time after `after` at which a job of these kinds is due, if any."""
        row = await self._database.fetch_one(
            "SELECT min(run_at) AS due FROM jobs WHERE state = 'pending' AND run_at > ?"
            " AND kind IN (SELECT value FROM json_each(?))",
            [to_micros(after), json.dumps(list(kinds))],
        )
        return from_micros(row["due"]) if row and row["due"] is not None else None

    async def recover(self, worker: str) -> None:
        """Fail the attempts that an earlier process with a worker's name has left running. To be
        called before the first claim, by the only process of this name."""
        await self._take_back(datetime.max.replace(tzinfo=UTC), worker)

    async def sweep(self, now: datetime) -> None:
        """Fail attempts whose lease has expired, and delete jobs a day (if done) or three after."""
        await self._take_back(now, None)
        await self._database.execute(
            "DELETE FROM jobs WHERE state = 'done' AND finished <= ?"
            " OR state IN ('failed', 'dead') AND finished <= ?",
            [to_micros(now - _KEPT_DONE), to_micros(now - _KEPT_FAILED)],
        )

    async def _take_back(self, before: datetime, worker: str | None) -> None:
        """Fail attempts whose worker has crashed: a job that crashes it each time ends dead."""
        rows = await self._database.fetch_all(
            "SELECT * FROM jobs WHERE state = 'running' AND lease <= ?1"
            " AND (CAST(?2 AS TEXT) IS NULL OR worker = ?2)",
            [to_micros(before), worker],
        )
        for job in map(_job, rows):
            await self.fail(job, "its worker crashed")


CRON_WRITE, CRON_DELIVER = "cron.write", "cron.deliver"
"""The kinds of the two jobs of a cron job's run: one writes the text, the other delivers it."""


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A cron job by its name, and the scheduled time of its next run."""

    name: str
    next_run: datetime
    is_paused: bool


class CronRuns(Repository):
    """The runs of cron jobs, by name, so that a restart neither repeats nor skips one."""

    async def last_run(self, job: str) -> datetime | None:
        """Return the scheduled time of the job's last run, None if it never ran."""
        row = await self._database.fetch_one("SELECT last_run FROM schedule WHERE job = ?", [job])
        return from_micros(row["last_run"]) if row else None

    async def record_run(self, job: str, time: datetime) -> None:
        """Record that the job has run for the scheduled time `time`."""
        await self._database.execute(
            "INSERT INTO schedule (job, last_run) VALUES (?, ?)"
            " ON CONFLICT (job) DO UPDATE SET last_run = excluded.last_run",
            [job, to_micros(time)],
        )

    async def record_next(self, job: str, time: datetime | None) -> None:
        """Record when the job, which has a last run, is due next, None if it is not configured."""
        sql = "UPDATE schedule SET next_run = ? WHERE job = ?"
        await self._database.execute(sql, [to_micros(time) if time else None, job])

    async def configured(self) -> Sequence[ScheduledJob]:
        """Return the jobs that have a next run, by name."""
        rows = await self._database.fetch_all(
            "SELECT * FROM schedule WHERE next_run IS NOT NULL ORDER BY job"
        )
        return [
            ScheduledJob(row["job"], from_micros(row["next_run"]), bool(row["paused"]))
            for row in rows
        ]

    async def pause(self, job: str, is_paused: bool) -> None:
        """Pause a job, whose runs are left out until it is resumed, or resume it."""
        sql = "UPDATE schedule SET paused = ? WHERE job = ?"
        await self._database.execute(sql, [int(is_paused), job])

    async def is_paused(self, job: str) -> bool:
        """Return whether a job is paused."""
        return any(each.is_paused for each in await self.configured() if each.name == job)

    async def enqueue(self, queue: Jobs, job: str, due: datetime) -> None:
        """Add a run of a job, for a time, to the jobs of the same database, unless it is there."""
        # The keys make this idempotent: after a crash before `record_run` the run is enqueued once
        # all the same.
        run, lane = f"cron/{job}/{due.isoformat()}", f"cron/{job}"
        payload = {"job": job, "due": due.isoformat()}
        written = await queue.add(CRON_WRITE, payload, key=f"{run}/write", lane=lane)
        await queue.add(CRON_DELIVER, payload, key=f"{run}/deliver", lane=lane, depends_on=written)


def _release(db: Connection, job: Job, **changes: str | int) -> bool:
    """Change columns of a claimed job and end its lease; False if it no longer is the caller's."""
    # `claims` is the fencing token: it has grown if another worker has claimed the job since.
    columns = ", ".join(f"{name} = :{name}" for name in changes)
    cursor = db.execute(
        f"UPDATE jobs SET lease = NULL, {columns}"
        " WHERE id = :id AND state = 'running' AND claims = :claims",
        changes | {"id": job.id, "claims": job.claims},
    )
    return cursor.rowcount > 0


def _fail_below(db: Connection, job_id: int, now: datetime) -> None:
    """Fail all jobs that wait for one that failed, directly or indirectly."""
    db.execute(
        f"{_BELOW} UPDATE jobs SET state = 'failed', finished = ?,"
        " error = 'the job that it depends on came to nothing'"
        " WHERE state = 'waiting' AND id IN (SELECT id FROM below)",
        [job_id, to_micros(now)],
    )


def _job(row: Row) -> Job:
    named = {name: row[name] for name in Job.__slots__}
    changed = {"payload": json.loads(row["payload"]), "run_at": from_micros(row["run_at"])}
    return Job(**named | changed)
