"""The worker: runs the jobs of a database file in the background, beside answers."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import structlog

from llm.messages.errors import Busy, Unreachable
from storage.db.errors import StorageError
from storage.queues.jobs import LEASE, Job, Jobs
from terrarium.clock import Clock

Handler = Callable[[Job], Awaitable[object]]
"""Does a job; what it returns (JSON, without anybody's words) is kept as its result. An error is
another attempt later; a server that is away or full costs no attempt."""

_AT_ONCE = 4
_LOOK = 30.0  # seconds until what other processes have added, or left to us, is seen
_AWAY = timedelta(minutes=1)  # until a server that is away or full is asked again
_SWEEP = timedelta(hours=1)

_log = structlog.get_logger()


class Worker:
    """Runs jobs of the kinds that have a handler, a few at once, one at a time of a lane.

    Of all processes that are given the same `lock`, a file, one works at a time: its name is the
    worker's. Workers of other names share the jobs with it; what one was running when it was killed
    is run again by the next that has its name. `idle` is set while nothing runs or is due.
    """

    def __init__(
        self, jobs: Jobs, handlers: Mapping[str, Handler], clock: Clock, lock: Path
    ) -> None:
        self._jobs = jobs
        self._handlers = handlers
        self._clock = clock
        self._lock = lock
        self._running = 0
        self._swept: datetime | None = None
        self.idle = asyncio.Event()

    async def run(self) -> None:
        """Run jobs until it is cancelled."""
        async with self._alone(), asyncio.TaskGroup() as tasks:
            while True:
                self._jobs.changed.clear()
                due = None
                try:
                    now = await self._start_due(tasks)
                    due = await self._jobs.next_due(self._handlers, now)
                except StorageError as error:
                    _log.error("worker.no_jobs", error=str(error))
                await self._idle(due)

    async def _start_due(self, tasks: asyncio.TaskGroup) -> datetime:
        """Start what may run now, and return the time of that. Other jobs that are due then wait
        for one that runs, whose end wakes the worker."""
        if self._swept is None:
            await self._jobs.recover(self._lock.stem)
        now = self._clock.now()
        if self._swept is None or now - self._swept >= _SWEEP:
            await self._jobs.sweep(now)
            self._swept = now
        while self._running < _AT_ONCE:
            job = await self._jobs.claim(self._lock.stem, self._handlers, now)
            if job is None:
                break
            self._running += 1
            tasks.create_task(self._execute(job))
        return now

    async def _idle(self, due: datetime | None) -> None:
        """Wait for a change, for the time at which a job is due, or for a while."""
        if self._running == 0 and not self._jobs.changed.is_set():
            self.idle.set()
        async with asyncio.TaskGroup() as tasks:
            waits = [tasks.create_task(self._jobs.changed.wait())]
            if due:
                waits.append(tasks.create_task(self._until(due)))
            await asyncio.wait(waits, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
        self.idle.clear()

    async def _until(self, time: datetime) -> Literal[True]:
        await self._clock.sleep_until(time)
        return True

    async def _execute(self, job: Job) -> None:
        try:
            await self._attempt(job)
        except asyncio.CancelledError:  # we are to stop: that is no fault of the job
            with suppress(StorageError):
                await asyncio.shield(self._jobs.postpone(job, self._clock.now()))
            raise
        except StorageError as error:  # its lease ends, and it is done again
            _log.error("worker.not_told", kind=job.kind, job=job.id, error=str(error))
        self._running -= 1
        self._jobs.changed.set()

    async def _attempt(self, job: Job) -> None:
        """Run the handler of a job and store how that ended. Raises StorageError."""
        try:
            async with asyncio.timeout(LEASE.total_seconds()):
                result = await self._handlers[job.kind](job)
        except (Unreachable, Busy):
            await self._jobs.postpone(job, self._clock.now() + _AWAY)
        except Exception as error:  # noqa: BLE001 -- whatever a job raises costs it an attempt
            _log.warning("worker.failed", kind=job.kind, job=job.id, exc_info=True)
            await self._jobs.fail(job, type(error).__name__)
        else:
            await self._jobs.finish(job, result)
            _log.info("worker.done", kind=job.kind, job=job.id)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold the lock, which the kernel frees however a process ends."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOOK)
            yield
