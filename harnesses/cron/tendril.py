"""The cron tendril: scheduled jobs whose text is delivered to a channel, a file or a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.cron.delivery import JobOutput
from harnesses.cron.errors import CronError, ModelUnavailable
from harnesses.cron.job import CronJob, read_jobs
from storage.db.database import Database
from storage.log import ChatLog
from storage.queues.cron_runs import Schedule
from storage.queues.outbox import Outbox, outbox_path
from storage.settings import log_path
from terrarium.clock import Clock
from terrarium.config import Config

# Seconds between the attempts while the model is away: an hour in all.
_WAITS = (15, 30, 60, 120, 240, *[300] * 10, 135)

_log = structlog.get_logger()


class CronTendril(Tendril):
    """Runs the jobs of `[cron.jobs.NAME]`, each in its own conversation "cron/NAME"."""

    name: ClassVar[str] = "cron"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self._jobs: dict[str, CronJob] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open also the log and the outbox, which jobs read and deliver to."""
        async with (
            super().open_resources(),
            Database.open(log_path(self.config)) as log,
            Database.open(outbox_path(self.config.data)) as outbox,
        ):
            self._chat_log, self._outbox = ChatLog(log), Outbox(outbox)
            self._jobs = read_jobs(self.config, self._chat_log, self._outbox)
            yield

    async def serve(self) -> None:
        """Run every job by its timetable, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            schedule, kept = Schedule(self.database), dict[str, asyncio.Task[None]]()
            while True:
                changed = self._changed
                for name in self._jobs:
                    if name not in kept or kept[name].done():
                        kept[name] = tasks.create_task(self._run_schedule(name, schedule))
                self.status.ready(", ".join(self._jobs) or "no jobs in [cron.jobs]")
                await changed.wait()

    def apply_config(self, config: Config) -> None:
        """Use the jobs of another configuration; a job that is running goes on to its end."""
        jobs = read_jobs(config, self._chat_log, self._outbox)
        super().apply_config(config)
        self._jobs = jobs
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run_schedule(self, name: str, schedule: Schedule) -> None:
        """Run a job whenever it is due, until the configuration has it no more. Times that were
        missed while the process was away count as one."""
        last = await schedule.last_run(name)
        if last is None:
            last = self.clock.now()
            await schedule.record_run(name, last)
        while job := self._jobs.get(name):
            # A clock that was once set wrong must not keep a job from running for years.
            due = job.timetable.due(min(last, self.clock.now()), self.clock.now())
            if await self._wait_until_due(due):
                await self._run(job, due)
                await schedule.record_run(name, due)
                last = due

    async def _wait_until_due(self, due: datetime) -> bool:
        """Wait for a time; return False when the jobs were changed before."""
        changing = asyncio.create_task(self._changed.wait())
        sleeping = asyncio.create_task(self.clock.sleep_until(due))
        try:
            await asyncio.wait({sleeping, changing}, return_when=asyncio.FIRST_COMPLETED)
            return sleeping.done()
        finally:
            sleeping.cancel()
            changing.cancel()

    async def _run(self, job: CronJob, due: datetime) -> None:
        """Run a job once; its errors are logged, and the other jobs go on."""
        log = _log.bind(job=job.name, due=due.isoformat())
        try:
            text = await self._text(job)
            if text is None:
                log.info("cron.nothing_said")
                return
            await job.delivery.deliver(JobOutput(job.name, due, text))
            log.info("cron.delivered", characters=len(text))
        except CronError as error:
            log.error("cron.job_failed", reason=type(error).__name__, error=str(error))

    async def _text(self, job: CronJob) -> str | None:
        """Return the model's answer, asked for again for an hour, or None when there is nothing to
        say. Raises ModelUnavailable."""
        for wait in (*_WAITS, None):
            log_window = await job.source.view(self.clock.now()) if job.source else None
            if job.source and not log_window:
                return None
            result = await self.turn(
                TurnRequest(
                    conversation=f"cron/{job.name}",
                    who="cron",
                    text=job.prompt,
                    log_window=log_window,
                    priority="background",
                    profile="job",
                    review=job.review,
                )
            )
            if result.ok:
                return result.text or None
            if wait is not None:
                _log.warning("cron.no_answer_yet", job=job.name, again_in=wait)
                await self.clock.sleep_until(self.clock.now() + timedelta(seconds=wait))
        raise ModelUnavailable(
            "the model gave no answer for an hour; the job waits for its next time"
        )
