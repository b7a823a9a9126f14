"""The background worker that runs the jobs of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import structlog

from llm.messages.errors import Busy, Unreachable
from storage.db.errors import StorageError
from storage.db.process_lock import wait_for_lock
from storage.queues.jobs import LEASE, Job, Jobs
from terrarium.clock import Clock

Handler = Callable[[Job], Awaitable[object]]
"""Executes a job and returns its JSON result, which is stored and so must not quote anybody.

An exception fails the attempt, and the job is retried later. `Unreachable` and `Busy` postpone the
job without costing an attempt.
"""

_MAX_CONCURRENT = 4  # jobs that run concurrently
_POLL_INTERVAL = 30.0  # seconds; finds jobs of other processes, and a lock that was freed
_UNREACHABLE_DELAY = timedelta(minutes=1)  # delay of a job whose server is unreachable or busy
_SWEEP_INTERVAL = timedelta(hours=1)  # interval of taking back expired leases and deleting old jobs

_log = structlog.get_logger()


class Worker:
    """Runs the jobs whose kind has a handler: a few concurrently, but one at a time per lane.

    The stem of the file `lock` is the worker's name. Among processes with the same lock file only
    one works at a time; workers with other names share the jobs with it. The jobs of a killed
    worker are recovered by the next worker of that name. `idle` is set while no job runs or is due.
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
        """Acquire the lock, then run jobs until cancelled."""
        async with wait_for_lock(self._lock, _POLL_INTERVAL), asyncio.TaskGroup() as tasks:
            while True:
                # Cleared before claiming: a job added from here on sets it again, so that the wait
                # below returns at once and no wake-up is lost.
                self._jobs.changed.clear()
                due = None
                try:
                    # On the first round. Safe only because the lock guarantees that no other worker
                    # of this name is running: the jobs claimed under it belong to a process that
                    # has died.
                    if self._swept is None:
                        await self._jobs.recover(self._lock.stem)
                    now = self._clock.now()
                    if self._swept is None or now - self._swept >= _SWEEP_INTERVAL:
                        await self._jobs.sweep(now)
                        self._swept = now
                    # The end of any running job wakes the worker to start others.
                    while self._running < _MAX_CONCURRENT:
                        job = await self._jobs.claim(self._lock.stem, self._handlers, now)
                        if job is None:
                            break
                        self._running += 1
                        tasks.create_task(self._execute(job))
                    due = await self._jobs.next_due(self._handlers, now)
                except StorageError as error:
                    _log.error("worker.no_jobs", error=str(error))
                if self._running == 0 and not self._jobs.changed.is_set():
                    self.idle.set()
                async with asyncio.TaskGroup() as waiting:
                    changed = waiting.create_task(self._jobs.changed.wait())
                    waits: list[asyncio.Task[Any]] = [changed]
                    if due:
                        waits.append(waiting.create_task(self._clock.sleep_until(due)))
                    await asyncio.wait(
                        waits, timeout=_POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED
                    )
                    for each in waits:
                        each.cancel()
                self.idle.clear()

    async def _execute(self, job: Job) -> None:
        """Run the handler of a job and store the outcome."""
        try:
            try:
                # A job that outlives its lease could be claimed and run by another worker.
                async with asyncio.timeout(LEASE.total_seconds()):
                    result = await self._handlers[job.kind](job)
            except (Unreachable, Busy):
                await self._jobs.postpone(job, self._clock.now() + _UNREACHABLE_DELAY)
            except Exception as error:  # noqa: BLE001 -- any exception of a job costs it an attempt
                _log.warning("worker.failed", kind=job.kind, job=job.id, exc_info=True)
                await self._jobs.fail(job, type(error).__name__)
            else:
                await self._jobs.finish(job, result)
                _log.info("worker.done", kind=job.kind, job=job.id)
        except asyncio.CancelledError:  # the worker is stopping: this costs the job no attempt
            # Shielded, so that a second cancellation does not leave the job leased.
            with suppress(StorageError):
                await asyncio.shield(self._jobs.postpone(job, self._clock.now()))
            raise
        except StorageError as error:  # the outcome is lost: the job is rerun after its lease
            _log.error("worker.not_told", kind=job.kind, job=job.id, error=str(error))
        self._running -= 1
        self._jobs.changed.set()
