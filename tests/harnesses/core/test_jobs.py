"""`terrarium jobs` over the files of tendrils."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.jobs import CronRuns, Job, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders
from tests.kit.command import Done, terrarium


@asynccontextmanager
async def queue(data: Path, tendril: str = "cron") -> AsyncIterator[Jobs]:
    """The jobs of a tendril in which each has one attempt."""
    async with Database.open(data / f"{tendril}.db") as database:
        yield Jobs(database, max_attempts=1)


async def jobs(data: Path, *arguments: str) -> Done:
    return await terrarium("jobs", *arguments, "--data", str(data), cwd=data)


async def claimed(queue: Jobs) -> Job:
    job = await queue.claim("worker", ["write", "deliver"], datetime.now(UTC))
    assert job
    return job


async def test_dead_letters_are_listed_with_their_reason_and_run_again_when_they_are_retried(
    tmp_path: Path,
) -> None:
    async with queue(tmp_path) as jobs_of_cron:
        written = await jobs_of_cron.add("write", {"job": "digest"})
        await jobs_of_cron.add("deliver", {"job": "digest"}, depends_on=written)
        await jobs_of_cron.fail(await claimed(jobs_of_cron), "ModelUnavailable")
    listed = (await jobs(tmp_path, "list", "--dead")).out.splitlines()
    assert listed[0].split() == [
        *("tendril", "name", "kind", "state", "attempts", "due", "what", "error")
    ]
    assert listed[1].split()[:5] == ["cron", "1", "write", "dead", "1/1"]
    assert '{"job": "digest"}' in listed[1]
    assert listed[1].endswith("ModelUnavailable")
    assert listed[2].split()[:4] == ["cron", "2", "deliver", "failed"]
    second = await jobs(tmp_path, "retry", "cron", "2")
    assert second.status == 1
    assert "retry the first of them" in second.err
    first = await jobs(tmp_path, "retry", "cron", "1")
    assert first.status == 0, first.err
    assert (await jobs(tmp_path, "list", "--dead")).out == "no jobs\n"
    async with queue(tmp_path) as jobs_of_cron:
        for kind in ("write", "deliver"):
            job = await claimed(jobs_of_cron)
            assert (job.kind, job.attempts) == (kind, 1)
            await jobs_of_cron.finish(job)
    assert (await jobs(tmp_path, "list")).out == "no jobs\n"
    assert len((await jobs(tmp_path, "list", "--done")).out.splitlines()) == 3


async def test_a_job_that_is_dropped_is_gone_and_what_waits_for_it_fails(tmp_path: Path) -> None:
    async with queue(tmp_path, "letters") as waiting:
        written = await waiting.add("write", {})
        await waiting.add("deliver", {}, depends_on=written)
    dropped = await jobs(tmp_path, "drop", "letters", "1")
    assert dropped.status == 0, dropped.err
    async with queue(tmp_path, "letters") as left:
        assert [(job.id, job.state) for job in await left.all()] == [(2, "failed")]
    again = await jobs(tmp_path, "drop", "letters", "1")
    assert (again.status, again.err.count("\n")) == (1, 1)
    strange = await jobs(tmp_path, "drop", "lettuce", "1")
    assert strange.status == 1
    assert "there are: letters" in strange.err


async def test_what_waits_is_listed_paused_and_run_by_its_name(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=3)
    async with queue(tmp_path) as jobs_of_cron, Database.open(tmp_path / "cron.db") as database:
        await jobs_of_cron.add("deliver", {}, run_at=later)
        await CronRuns(database).record_run("digest", later)
        await CronRuns(database).record_next("digest", later)
        for place in ("#pond", "ada!a@h"):
            due = Reminder(Owner("irc", "ada"), Place("irc", place), place != "#pond", place, later)
            await Reminders(database).add(due)
    paused = await jobs(tmp_path, "pause", "cron", "reminder-1")
    assert paused.status == 0, paused.err
    listed = (await jobs(tmp_path, "list")).out
    rows = [line.split()[1:4] for line in listed.splitlines()[1:]]
    assert rows == [
        ["reminder-1", "reminder", "paused"],
        ["digest", "cron", "job"],
        ["1", "deliver", "pending"],
    ]
    assert "ada!" not in listed  # in private
    assert (await jobs(tmp_path, "run", "cron", "digest")).status == 0
    async with queue(tmp_path) as jobs_of_cron:
        kinds = [job.kind for job in await jobs_of_cron.all()]
        assert kinds == ["deliver", "cron.write", "cron.deliver"]
    strange = await jobs(tmp_path, "pause", "cron", "reminder-2")
    assert (strange.status, strange.err.count("\n")) == (1, 1)
    assert "has no reminder-2 to pause" in strange.err
