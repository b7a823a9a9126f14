"""The last run of each scheduled job, so that a restart neither repeats nor skips one."""

from __future__ import annotations

from datetime import datetime

from storage.db.database import Database, from_micros, to_micros


class CronRuns:
    """The run times in a database file, by job name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def last_run(self, job: str) -> datetime | None:
        """Return the scheduled time of the job's last run, None if it never ran."""
        row = await self._database.fetch_one("SELECT last_run FROM schedule WHERE job = ?", [job])
        return from_micros(row["last_run"]) if row else None

    async def record_run(self, job: str, time: datetime) -> None:
        """Record that the job has run for the scheduled time `time`."""
        async with self._database.transaction() as db:
            await db.execute(
                "INSERT INTO schedule VALUES (?, ?)"
                " ON CONFLICT (job) DO UPDATE SET last_run = excluded.last_run",
                [job, to_micros(time)],
            )
