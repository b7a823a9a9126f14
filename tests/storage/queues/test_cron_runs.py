"""The run times of scheduled jobs, kept over restarts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from storage.db.database import Database
from storage.queues.cron_runs import CronRuns
from tests.kit.stores import Stores

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


async def test_the_last_run_of_each_job_is_remembered(stores: Stores) -> None:
    async with Database.open(stores("cron")) as database:
        schedule = CronRuns(database)
        assert await schedule.last_run("digest") is None
        await schedule.record_run("digest", NOON)
        await schedule.record_run("digest", NOON + timedelta(days=1))
        await schedule.record_run("hello", NOON)
    async with Database.open(stores("cron")) as database:
        schedule = CronRuns(database)
        assert await schedule.last_run("digest") == NOON + timedelta(days=1)
        assert await schedule.last_run("hello") == NOON
