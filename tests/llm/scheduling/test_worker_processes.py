"""Several worker processes share the jobs of a store, and are killed over and over.

`KILLS=200` kills as many, and gives them as many more jobs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from llm.scheduling.worker import Worker
from storage.chat_log.event import Place
from storage.db.address import Address
from storage.db.database import Database
from storage.queues.jobs import Job, Jobs
from storage.queues.outbox import Outbox
from terrarium.clock import Clock
from tests.kit.patience import PATIENCE
from tests.kit.stores import Stores

WORKERS, KILLED_AT_ONCE = 4, 2
KILLS = int(os.environ.get("KILLS", "10")) // KILLED_AT_ONCE
JOBS = 80 * KILLS
AT_ONCE = 4  # jobs of one worker
CLAIMED = 200  # jobs that are claimed and not done
DUE = datetime(2100, 1, 1, tzinfo=UTC)  # when all that waits is due
PLACE = Place("irc", "#terrarium")
CONTEXT = multiprocessing.get_context("forkserver")


def work(address: Address, folder: Path, name: str) -> None:
    """Do jobs until killed: note the attempt, then say something once by its key."""

    async def run() -> None:
        async with Database.open(address) as database:
            jobs, outbox = Jobs(database, retry=timedelta(), max_attempts=50), Outbox(database)

            async def say(job: Job) -> None:
                with (folder / f"attempts-{name}").open("a") as file:
                    file.write(f"{job.payload['n']}\n")
                await asyncio.sleep(0.01)  # the work itself: a killed process is in the middle
                await outbox.put(f"job/{job.id}", PLACE, str(job.payload["n"]))

            await Worker(jobs, {"say": say}, Clock(), folder / f"{name}.lock").run()

    asyncio.run(run())


def process_of(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Return a process that runs `target`; the fork server has imported its modules before."""
    CONTEXT.set_forkserver_preload([__name__])
    return CONTEXT.Process(target=target, args=arguments)


def start(address: Address, folder: Path, name: str) -> BaseProcess:
    """Start the worker of this name."""
    process = process_of(work, address, folder, name)
    process.start()
    return process


def claim_all(address: Address, name: str, together: Barrier, results: Connection) -> None:
    """Claim jobs one after another, from the moment on at which the others do too, until there are
    none; send their ids."""

    async def run() -> list[int]:
        claimed = []
        async with Database.open(address) as database:
            jobs = Jobs(database)
            together.wait(PATIENCE)
            while job := await jobs.claim(name, ["say"], DUE):
                claimed.append(job.id)
        return claimed

    results.send(asyncio.run(run()))


@pytest.mark.slow
@pytest.mark.server
async def test_processes_that_claim_at_once_never_take_the_same_job(stores: Stores) -> None:
    address = stores("jobs")
    async with Database.open(address) as database:
        added = {await Jobs(database).add("say", {"n": number}) for number in range(CLAIMED)}
    together, (ours, theirs) = CONTEXT.Barrier(WORKERS), CONTEXT.Pipe(duplex=False)
    workers = [
        process_of(claim_all, address, f"w{each}", together, theirs) for each in range(WORKERS)
    ]
    try:
        for process in workers:
            process.start()
        claimed = [await asyncio.to_thread(ours.recv) for _ in workers]
    finally:
        for process in workers:
            process.kill()
            await asyncio.to_thread(process.join, PATIENCE)
    assert sorted(each for ids in claimed for each in ids) == sorted(added)
    assert sum(bool(ids) for ids in claimed) > 1  # they were at it at the same time


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.server
async def test_hundreds_of_jobs_outlive_ten_killed_workers(stores: Stores, tmp_path: Path) -> None:
    chance, address = random.Random(2026), stores("jobs")
    async with Database.open(address) as database:
        jobs = Jobs(database, max_attempts=50)
        for number in range(JOBS):
            await jobs.add("say", {"n": number})
        workers = {f"w{each}": start(address, tmp_path, f"w{each}") for each in range(WORKERS)}
        try:
            for kill in range(KILLS):
                await until_done(jobs, (kill + 1) * JOBS // (KILLS + 2))
                for name in chance.sample(sorted(workers), KILLED_AT_ONCE):
                    workers[name].kill()
                    await asyncio.to_thread(workers[name].join, PATIENCE)
                    assert workers[name].exitcode == -signal.SIGKILL
                    workers[name] = start(address, tmp_path, name)
            await until_done(jobs, JOBS)
        finally:
            for process in workers.values():
                process.kill()
                await asyncio.to_thread(process.join, PATIENCE)
        assert Counter(job.state for job in await jobs.all()) == {"done": JOBS}
        said = [int(message.text) for message in await Outbox(database).list_unsent()]
    assert sorted(said) == list(range(JOBS))  # none lost, none said twice
    repeated = attempts(tmp_path) - JOBS
    assert 0 <= repeated <= KILLS * KILLED_AT_ONCE * AT_ONCE  # only what was being done


async def until_done(jobs: Jobs, count: int) -> None:
    """Wait until so many jobs are done by other processes."""
    while len(await jobs.all("done")) < count:  # noqa: ASYNC110 -- they have no event for us
        await asyncio.sleep(0.25)


def attempts(folder: Path) -> int:
    """Return how often a job was begun."""
    return sum(len(file.read_text().split()) for file in folder.glob("attempts-*"))
