"""One queue for several servers: leases, engines that come and go, and servers that die."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import pytest

from agent_server.admission.admission import AdmissionPolicy
from agent_server.errors import ApiError, QueueTimeout, RateLimited
from agent_server.ray.shared_admission import LEASE_TIMEOUT, SharedAdmission, SlotRequest
from terrarium.config import Config

TERRA = "terra"


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def shared(
    clock: Clock | None = None, *, slots: int = 1, waiting: int = 256, wait: float = 60
) -> SharedAdmission:
    tables = {"model": {"slots": slots}, "admission": {"max_waiting": waiting}}
    config = Config(tables, None, Path("data"))
    return SharedAdmission(config, AdmissionPolicy(max_wait=wait), clock or Clock())


def slot_request(key: str = "anybody", weight: float = 1.0) -> SlotRequest:
    return SlotRequest(token_hex(8), key, 10, weight, background=False, parallel=None)


async def running(admission: SharedAdmission) -> tuple[int, int, int]:
    """The places, how many are taken, and how many requests wait."""
    state = (await admission.renew({}))[TERRA]
    return state.slots, state.running, state.interactive


async def waits(admission: SharedAdmission, asked: SlotRequest) -> asyncio.Task[ApiError | None]:
    """A request that waits in the queue."""
    _, _, before = await running(admission)
    task = asyncio.create_task(admission.acquire(TERRA, asked))
    while (await running(admission))[2] == before:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    return task


async def test_all_servers_share_the_places_of_a_model() -> None:
    admission, first, second = shared(), slot_request(), slot_request()
    assert await admission.acquire(TERRA, first) is None
    waiting = await waits(admission, second)
    assert await running(admission) == (1, 1, 1)
    await admission.release(TERRA, first.id, 10)
    assert await waiting is None


async def test_places_are_shared_by_weight_whichever_server_asks() -> None:
    """Two servers, each of which has requests of both keys waiting all the time."""
    admission, served = shared(slots=2), {"heavy": 0, "light": 0}

    async def keep_asking(key: str, weight: float) -> None:
        while sum(served.values()) < 400:
            asked = slot_request(key, weight)
            assert await admission.acquire(TERRA, asked) is None
            served[key] += 1
            await asyncio.sleep(0)
            await admission.release(TERRA, asked.id, 10)

    async with asyncio.TaskGroup() as tasks:
        for _server in range(2):
            for _ in range(3):
                tasks.create_task(keep_asking("heavy", 3))
                tasks.create_task(keep_asking("light", 1))
    assert served["heavy"] / served["light"] == pytest.approx(3, rel=0.1)


async def test_the_places_of_a_server_that_died_are_free_again() -> None:
    clock = Clock()
    admission, dead, alive = shared(clock, slots=2), slot_request(), slot_request()
    for each in (dead, alive):
        assert await admission.acquire(TERRA, each) is None
    clock.now = LEASE_TIMEOUT - 1
    await admission.renew({TERRA: [alive.id]})
    clock.now = LEASE_TIMEOUT + 1
    await admission.renew({TERRA: [alive.id]})
    assert await running(admission) == (2, 1, 0)


async def test_a_request_whose_server_died_while_it_waited_keeps_no_place() -> None:
    clock = Clock()
    admission, first, dead = shared(clock), slot_request(), slot_request()
    assert await admission.acquire(TERRA, first) is None
    waiting = await waits(admission, dead)
    clock.now = LEASE_TIMEOUT - 1
    await admission.renew({TERRA: [first.id]})
    clock.now = LEASE_TIMEOUT + 1
    await admission.renew({TERRA: [first.id]})
    await admission.release(TERRA, first.id, 10)
    await waiting
    assert await running(admission) == (1, 0, 0)


async def test_a_request_that_is_sent_twice_has_one_place() -> None:
    admission, asked = shared(slots=2), slot_request()
    for _ in range(2):
        assert await admission.acquire(TERRA, asked) is None
    await admission.release(TERRA, asked.id, 10)
    assert await running(admission) == (2, 0, 0)


async def test_one_that_leaves_the_queue_keeps_no_place() -> None:
    admission, first, second = shared(), slot_request(), slot_request()
    assert await admission.acquire(TERRA, first) is None
    waiting = await waits(admission, second)
    waiting.cancel()
    await asyncio.wait({waiting})
    await admission.release(TERRA, first.id, 10)
    assert await running(admission) == (1, 0, 0)


async def test_a_full_queue_and_a_long_wait_are_told_as_errors() -> None:
    admission = shared(waiting=1, wait=0.05)
    assert await admission.acquire(TERRA, slot_request()) is None
    waiting = await waits(admission, slot_request())
    assert isinstance(await admission.acquire(TERRA, slot_request()), RateLimited)
    assert isinstance(await waiting, QueueTimeout)


async def test_each_engine_that_comes_adds_its_places_until_it_goes_or_falls_silent() -> None:
    clock = Clock()
    admission = shared(clock, slots=2)
    assert (await running(admission))[0] == 2  # for the one that is being started
    for engine in ("one", "two", "three"):
        await admission.offer(TERRA, engine)
    assert (await running(admission))[0] == 6
    await admission.withdraw(TERRA, "one")
    assert (await running(admission))[0] == 4
    clock.now = LEASE_TIMEOUT - 1
    await admission.offer(TERRA, "two")
    clock.now = LEASE_TIMEOUT + 1
    assert await admission.offer(TERRA, "two") == 0
    assert (await running(admission))[0] == 2


async def test_an_engine_that_comes_takes_those_that_wait() -> None:
    admission = shared()
    await admission.offer(TERRA, "one")
    assert await admission.acquire(TERRA, slot_request()) is None
    waiting = await waits(admission, slot_request())
    assert await admission.offer(TERRA, "one") == 2  # the demand: one runs, one waits
    await admission.offer(TERRA, "two")
    assert await waiting is None
