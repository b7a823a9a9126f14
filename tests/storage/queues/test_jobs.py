"""The queue of jobs: order, leases, attempts, chains, and what is left of them in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from storage.db.database import Database
from storage.queues.jobs import LEASE, CronRuns, Job, Jobs
from tests.kit.lines import NOON
from tests.kit.stores import Stores

RETRY = timedelta(seconds=30)


class Queue(Jobs):
    """Jobs at a time that the test sets."""

    def __init__(self, database: Database) -> None:
        self.time = NOON
        super().__init__(database, lambda: self.time, RETRY)

    async def next(self, *kinds: str) -> Job | None:
        """Claim the next job."""
        return await self.claim("worker", kinds or ("work",), self.time)

    async def one(self, *kinds: str) -> Job:
        """Claim the next job, which there must be."""
        job = await self.next(*kinds)
        assert job
        return job

    async def states(self) -> list[str]:
        """The states of all jobs, in order of arrival."""
        return [job.state for job in await self.all()]


@pytest.fixture
async def queue(stores: Stores) -> AsyncIterator[Queue]:
    async with Database.open(stores("jobs")) as database:
        yield Queue(database)


async def test_the_lowest_number_runs_first_then_the_oldest(queue: Queue) -> None:
    for name, priority in (("late", 100), ("later", 100), ("urgent", 5)):
        await queue.add("work", {"name": name}, priority=priority)
    order = [(await queue.one()).payload["name"] for _ in range(3)]
    assert order == ["urgent", "late", "later"]
    assert await queue.next() is None


async def test_a_job_runs_at_its_time_and_only_where_its_kind_is_known(queue: Queue) -> None:
    await queue.add("work", {}, run_at=NOON + timedelta(hours=1))
    await queue.add("other", {})
    assert await queue.next() is None
    assert await queue.next_due(["work"], queue.time) == NOON + timedelta(hours=1)
    queue.time += timedelta(hours=1)
    assert (await queue.one()).kind == "work"
    assert await queue.next_due(["work"], queue.time) is None


async def test_two_workers_never_get_the_same_job(queue: Queue) -> None:
    for _ in range(10):
        await queue.add("work", {})
    claimed = await asyncio.gather(*(queue.next() for _ in range(20)))
    assert sorted(job.id for job in claimed if job) == list(range(1, 11))


async def test_the_same_key_is_the_same_job_also_when_it_is_done(queue: Queue) -> None:
    first = await queue.add("work", {"n": 1}, key="once")
    assert await queue.add("work", {"n": 2}, key="once") == first
    job = await queue.one()
    assert (job.id, job.payload) == (first, {"n": 1})
    await queue.finish(job)
    assert await queue.add("work", {"n": 3}, key="once") == first
    assert await queue.next() is None


async def test_of_one_lane_one_job_runs_at_a_time(queue: Queue) -> None:
    for lane in ("frogs", "frogs", "toads"):
        await queue.add("work", {}, lane=lane)
    first, second = await queue.one(), await queue.one()
    assert (first.lane, second.lane) == ("frogs", "toads")
    assert await queue.next() is None
    await queue.finish(first)
    assert (await queue.one()).lane == "frogs"


async def test_a_failed_attempt_is_repeated_later_each_time_until_the_job_is_dead(
    queue: Queue,
) -> None:
    queue.max_attempts = 3
    await queue.add("work", {})
    for attempt, wait in ((1, RETRY), (2, 2 * RETRY)):
        job = await queue.one()
        assert job.attempts == attempt
        assert await queue.fail(job, "Broken")
        assert await queue.next() is None
        queue.time += wait
    await queue.fail(await queue.one(), "Broken")
    assert await queue.states() == ["dead"]
    queue.time += timedelta(hours=1)
    assert await queue.next() is None


async def test_a_postponed_job_has_lost_no_attempt(queue: Queue) -> None:
    queue.max_attempts = 1
    await queue.add("work", {})
    for _ in range(5):
        await queue.postpone(await queue.one(), queue.time + RETRY)
        assert await queue.next() is None
        queue.time += RETRY
    assert (await queue.one()).attempts == 1


async def test_a_job_waits_for_the_one_that_it_depends_on(queue: Queue) -> None:
    parent = await queue.add("work", {"n": 1})
    child = await queue.add("work", {"n": 2}, depends_on=parent, priority=1)
    await queue.add("work", {"n": 3}, depends_on=child)
    assert await queue.states() == ["pending", "waiting", "waiting"]
    for number in (1, 2, 3):
        job = await queue.one()
        assert job.payload == {"n": number}
        assert await queue.next() is None
        await queue.finish(job)
    assert await queue.states() == ["done"] * 3
    late = await queue.add("work", {}, depends_on=parent)
    assert (await queue.one()).id == late


@pytest.mark.parametrize("state", ["dead", "failed"])
async def test_a_parent_that_comes_to_nothing_fails_all_that_wait_for_it_then_and_later(
    queue: Queue, state: str
) -> None:
    queue.max_attempts = 1
    parent = await queue.add("work", {})
    child = await queue.add("work", {}, depends_on=parent)
    await queue.add("work", {}, depends_on=child)
    if state == "dead":
        await queue.fail(await queue.one(), "Broken")
    else:
        assert await queue.cancel(parent)
        assert not await queue.cancel(parent)
    assert await queue.states() == [state, "failed", "failed"]
    assert await queue.next() is None
    queue.time += timedelta(hours=72)
    await queue.sweep(queue.time)
    assert await queue.states() == []
    await queue.add("work", {}, depends_on=parent)
    assert await queue.states() == ["failed"]
    assert await queue.next() is None


async def test_a_job_whose_lease_is_over_runs_again_and_a_late_word_of_the_first_worker_is_void(
    queue: Queue,
) -> None:
    await queue.add("work", {})
    first = await queue.one()
    queue.time += LEASE - timedelta(seconds=1)
    await queue.sweep(queue.time)
    assert await queue.states() == ["running"]
    queue.time += timedelta(seconds=1)
    await queue.sweep(queue.time)
    queue.time += RETRY
    second = await queue.one()
    assert (second.id, second.attempts) == (first.id, 2)
    assert not await queue.finish(first)
    assert not await queue.fail(first, "Broken")
    assert await queue.finish(second)


async def test_a_job_that_crashes_its_worker_each_time_ends_dead(queue: Queue) -> None:
    queue.max_attempts = 3
    await queue.add("work", {})
    for _ in range(3):
        await queue.one()
        await queue.recover("other")
        assert await queue.states() == ["running"]
        await queue.recover("worker")
        queue.time += timedelta(hours=1)
    assert await queue.states() == ["dead"]
    assert await queue.next() is None


async def test_what_is_over_goes_after_a_day_or_three_and_nothing_else_does(queue: Queue) -> None:
    await queue.add("work", {})
    await queue.finish(await queue.one())
    queue.max_attempts = 1
    await queue.add("work", {})
    await queue.fail(await queue.one(), "Broken")
    await queue.add("work", {}, run_at=NOON + timedelta(days=9))
    for hours, left in ((23, 3), (24, 2), (71, 2), (72, 1), (500, 1)):
        await queue.sweep(NOON + timedelta(hours=hours))
        assert len(await queue.all()) == left
    assert await queue.all("dead", "done") == []
    (job,) = await queue.all("pending")
    assert job.run_at == NOON + timedelta(days=9)
    await queue.drop(job.id)
    assert await queue.add("work", {}) == job.id + 1  # ids are never used twice


async def test_who_had_claimed_a_job_before_it_was_retried_cannot_finish_it(queue: Queue) -> None:
    job_id = await queue.add("work", {})
    first = await queue.one()
    await queue.cancel(job_id)
    await queue.retry(job_id)
    second = await queue.one()
    assert not await queue.finish(first, "old")
    assert not await queue.fail(first, "old")
    assert await queue.finish(second, "new")
    assert await queue.result(job_id) == "new"


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
