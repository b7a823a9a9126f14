"""The cron tendril: jobs that run by the clock and bring their text somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from harnesses.core.harness import Harness
from harnesses.cron.delivery import Delivery, Result, ToChannel, ToFile, ToWebhook
from harnesses.cron.digest import LogSource
from harnesses.cron.errors import CronError, NoAnswer
from harnesses.cron.job import Job
from harnesses.cron.settings import CronSettings, JobSettings
from harnesses.cron.target import File, Webhook, networks, parse_channel, parse_target
from llm.clock import Clock
from llm.timetable import Timetable
from storage.chat_log import ChatLog
from storage.config import Config, ConfigError
from storage.database import Database
from storage.outbox import Outbox, outbox_path
from storage.schedule import Schedule
from storage.settings import log_path

# Seconds between the attempts while the model is away: an hour in all.
_WAITS = (15, 30, 60, 120, 240, *[300] * 10, 135)

_log = structlog.get_logger()


class CronTendril(Harness):
    """Runs the jobs of `[cron.jobs.NAME]`, each in its own conversation "cron/NAME"."""

    name: ClassVar[str] = "cron"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self._settings = config.section(CronSettings)

    async def serve(self) -> None:
        """Keep every job's timetable, for ever."""
        async with self._jobs() as jobs, asyncio.TaskGroup() as tasks:
            schedule = Schedule(self.database)
            for job in jobs:
                tasks.create_task(self._keep(job, schedule))
            self.status.ready(", ".join(job.name for job in jobs) or "no jobs in [cron.jobs]")
            await asyncio.Event().wait()

    async def _keep(self, job: Job, schedule: Schedule) -> None:
        """Run a job whenever it is due; what was missed in the meantime is run once."""
        last = await schedule.last_run(job.name)
        if last is None:
            last = self.clock.now()
            await schedule.ran(job.name, last)
        while True:
            # A clock that was once set wrong must not keep a job from running for years.
            due = job.timetable.due(min(last, self.clock.now()), self.clock.now())
            await self.clock.sleep_until(due)
            await self._run(job, due)
            await schedule.ran(job.name, due)
            last = due

    async def _run(self, job: Job, due: datetime) -> None:
        """Do a job once; what goes wrong is logged and leaves the other jobs alone."""
        log = _log.bind(job=job.name, due=due.isoformat())
        try:
            text = await self._text(job)
            if text is None:
                log.info("cron.nothing_said")
                return
            await job.delivery.deliver(Result(job.name, due, text))
            log.info("cron.delivered", characters=len(text))
        except CronError as error:
            log.error("cron.job_failed", reason=type(error).__name__, error=str(error))

    async def _text(self, job: Job) -> str | None:
        """The model's answer, asked for again for an hour; None when there is nothing to say."""
        for wait in (*_WAITS, None):
            view = await job.source.view(self.clock.now()) if job.source else None
            if job.source and not view:
                return None
            answer = await self.turn(
                f"cron/{job.name}", who="cron", text=job.prompt, view=view, priority="background"
            )
            if answer.ok:
                return answer.text
            if wait is not None:
                _log.warning("cron.no_answer_yet", job=job.name, again_in=wait)
                await self.clock.sleep_until(self.clock.now() + timedelta(seconds=wait))
        raise NoAnswer("the model gave no answer for an hour; the job waits for its next time")

    @asynccontextmanager
    async def _jobs(self) -> AsyncIterator[list[Job]]:
        """The jobs, while the log that they read and the outbox are open."""
        async with (
            Database.opened(log_path(self.config)) as log,
            Database.opened(outbox_path(self.config.data)) as outbox,
        ):
            yield [
                Job(
                    name,
                    Timetable.parsed(settings.schedule, settings.timezone),
                    settings.prompt,
                    self._source(name, settings, ChatLog(log)),
                    self._delivery(name, settings, Outbox(outbox)),
                )
                for name, settings in self._settings.jobs.items()
            ]

    def _source(self, name: str, settings: JobSettings, log: ChatLog) -> LogSource | None:
        if settings.log is None:
            return None
        place = parse_channel(settings.log).place(self.config, f"jobs.{name}.log")
        return LogSource(log, place, settings.hours, settings.lines)

    def _delivery(self, name: str, settings: JobSettings, outbox: Outbox) -> Delivery:
        target = parse_target(settings.deliver)
        if isinstance(target, Webhook):
            return ToWebhook(target.url)
        if isinstance(target, File):
            return ToFile(self.config.data / target.path)
        where = f"jobs.{name}.deliver"
        place = target.place(self.config, where)
        if place.network not in networks(self.config):
            raise ConfigError(
                f'{self.config.name}: [cron] {where}: no network is called "{place.network}"; '
                f"there are: {', '.join(networks(self.config))}"
            )
        return ToChannel(outbox, place)
