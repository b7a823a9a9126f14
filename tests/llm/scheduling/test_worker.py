"""The worker: jobs are done beside all else, once, also when its process is killed meanwhile."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llm.messages.errors import Unreachable
from llm.scheduling.worker import Handler, Worker
from storage.db.database import Database
from storage.queues.jobs import Job, Jobs
from terrarium.clock import Clock
from tests.kit.clock import ManualClock
from tests.kit.jobs import settled

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@asynccontextmanager
async def working(
    folder: Path, jobs: Jobs, handlers: Mapping[str, Handler], clock: ManualClock
) -> AsyncIterator[Worker]:
    """A worker that runs meanwhile."""
    worker = Worker(jobs, handlers, clock, folder / "run" / "test.lock")
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            yield worker
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Jobs, ManualClock]]:
    clock = ManualClock(NOON)
    async with Database.open(folder / "jobs.db") as database:
        yield Jobs(database, clock.now), clock


async def test_what_is_added_while_it_waits_is_done_at_once(tmp_path: Path) -> None:
    done: asyncio.Queue[int] = asyncio.Queue()

    async def work(job: Job) -> None:
        await done.put(job.payload["n"])

    async with (
        opened(tmp_path) as (jobs, clock),
        working(tmp_path, jobs, {"work": work}, clock) as worker,
    ):
        await worker.idle.wait()
        await jobs.add("work", {"n": 1})
        assert await done.get() == 1
        await jobs.add("work", {"n": 2}, run_at=NOON + timedelta(hours=1))
        assert await clock.asleep() == [NOON + timedelta(hours=1)]
        await clock.advance(timedelta(hours=1))
        assert await done.get() == 2
        await worker.idle.wait()
        assert [job.state for job in await jobs.all()] == ["done", "done"]


async def test_jobs_of_one_lane_never_overlap_and_others_do_not_wait_for_them(
    tmp_path: Path,
) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def work(job: Job) -> None:
        await begun.put(job.payload["n"])
        await gates[job.payload["n"]].wait()

    async with opened(tmp_path) as (jobs, clock), working(tmp_path, jobs, {"work": work}, clock):
        for number, lane in enumerate(("frogs", "frogs", "toads")):
            await jobs.add("work", {"n": number}, lane=lane)
        assert {await begun.get(), await begun.get()} == {0, 2}
        gates[2].set()
        gates[0].set()
        assert await begun.get() == 1
        gates[1].set()


async def test_an_error_is_another_attempt_later_and_a_server_that_is_away_costs_none(
    tmp_path: Path,
) -> None:
    errors = [Unreachable("away"), ValueError("broken"), Unreachable("away")]

    async def work(_: Job) -> str:
        if errors:
            raise errors.pop(0)
        return "fine"

    async with (
        opened(tmp_path) as (jobs, clock),
        working(tmp_path, jobs, {"work": work}, clock) as worker,
    ):
        jobs.max_attempts = 2
        await jobs.add("work", {})
        for _ in range(3):
            (due,) = await clock.asleep()
            await clock.set(due)
        await settled(worker, jobs)
        (job,) = await jobs.all()
        assert (job.state, job.attempts) == ("done", 2)


async def test_a_handler_that_always_fails_ends_dead_and_the_others_go_on(tmp_path: Path) -> None:
    async def poison(_: Job) -> None:
        raise ValueError("secret words")

    async def work(_: Job) -> None:
        pass

    handlers = {"poison": poison, "work": work}
    async with (
        opened(tmp_path) as (jobs, clock),
        working(tmp_path, jobs, handlers, clock) as worker,
    ):
        jobs.max_attempts = 2
        await jobs.add("poison", {})
        await jobs.add("work", {})
        (due,) = await clock.asleep()
        await clock.set(due)
        await settled(worker, jobs)
        poisoned, worked = await jobs.all()
        assert (poisoned.state, poisoned.error, worked.state) == ("dead", "ValueError", "done")


async def test_a_worker_that_is_stopped_gives_its_jobs_back_for_the_next_one(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()
    attempts = []

    async def work(job: Job) -> None:
        attempts.append(job.attempts)
        begun.set()
        if len(attempts) < 8:
            await asyncio.Event().wait()

    async with opened(tmp_path) as (jobs, clock):
        jobs.max_attempts = 1
        await jobs.add("work", {})
        for _ in range(7):
            async with working(tmp_path, jobs, {"work": work}, clock):
                await begun.wait()
                begun.clear()
        async with working(tmp_path, jobs, {"work": work}, clock) as worker:
            await settled(worker, jobs)
        assert [job.state for job in await jobs.all()] == ["done"]
    assert attempts == [1] * 8


def begin(folder: Path) -> None:
    """Work until killed; each beginning and end of a job is a line of a file."""

    async def note(word: str, job: Job) -> None:
        with (folder / "notes").open("a") as file:
            file.write(f"{word} {job.payload['name']}\n")

    async def once(job: Job) -> None:
        """Crash the process the first time."""
        await note("begun", job)
        if job.attempts == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        await note("done", job)

    async def poison(job: Job) -> None:
        """Crash the process each time."""
        await note("begun", job)
        os.kill(os.getpid(), signal.SIGKILL)

    async def work() -> None:
        async with Database.open(folder / "jobs.db") as database:
            jobs = Jobs(database, retry=timedelta())
            worker = Worker(jobs, {"once": once, "poison": poison}, Clock(), folder / "test.lock")
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(worker.run())
                while await jobs.all("pending", "running", "waiting"):
                    await worker.idle.wait()
                running.cancel()

    asyncio.run(work())


async def killed(folder: Path) -> int:
    """Work in another process until it ends; its exit code."""
    process = multiprocessing.get_context("forkserver").Process(target=begin, args=(folder,))
    process.start()
    await asyncio.to_thread(process.join)
    code = process.exitcode
    process.close()
    assert code is not None
    return code


@pytest.mark.server
async def test_a_job_that_was_killed_in_the_middle_runs_once_more_and_poison_ends_dead(
    tmp_path: Path,
) -> None:
    async with Database.open(tmp_path / "jobs.db") as database:
        jobs = Jobs(database)
        await jobs.add("once", {"name": "summary"})
        codes = [await killed(tmp_path), await killed(tmp_path)]
        assert codes == [-signal.SIGKILL, 0]
        jobs.max_attempts = 3
        await jobs.add("poison", {"name": "poison"})
        codes = [await killed(tmp_path) for _ in range(4)]
        assert codes == [-signal.SIGKILL] * 3 + [0]
        assert [job.state for job in await jobs.all()] == ["done", "dead"]
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes == ["begun summary", "begun summary", "done summary", *["begun poison"] * 3]
