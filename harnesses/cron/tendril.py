"""The cron tendril: scheduled jobs whose text is delivered to a channel, a file or a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, ClassVar

import structlog
from pydantic import Field

from harnesses.core.services.peers import Origin
from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.status import read_reports
from harnesses.core.tendril.turn import TurnRequest
from harnesses.cron.jobs import MAX_LINES, ChannelDelivery, CronJob, JobOutput, read_jobs
from llm.messages.message import ShownText, quoted_lines, quotes_of
from llm.prompt.log_window import LogWindow
from llm.scheduling.worker import Worker
from llm.tools.consent import RunSoFar, to_send
from llm.tools.toolbox import EffectKey, Tool, ToolError, ToolSource, describe, tool
from storage.chat_log.event import Identity, Scope
from storage.queues.jobs import CRON_DELIVER, CRON_WRITE, CronRuns, Job, Jobs
from terrarium.clock import Clock
from terrarium.config import Config

# The backoff doubles with each attempt: after about an hour in all the run is dead.
_FIRST_PAUSE = timedelta(seconds=15)
_MAX_ATTEMPTS = 9
_MAX_MESSAGE = 400  # characters

_log = structlog.get_logger()


class ModelUnavailable(Exception):
    """The model gave no answer to a run of a job; the message is for the log."""


class CronTendril(Tendril):
    """Runs the jobs of `[cron.jobs.NAME]`, each in its own conversation "cron/NAME"."""

    name: ClassVar[str] = "cron"
    asked_about: ClassVar[str] = "the scheduled jobs, and how each process of Terrarium is"
    learns: ClassVar[bool] = False  # nobody speaks there

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self._jobs: dict[str, CronJob] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open everything, and read the jobs. Raises StorageError and ConfigError."""
        async with super().open_resources():
            self._jobs = read_jobs(self.config, self.log.chat_log, self.outbox)
            self._queue = Jobs(self.database, self.clock.now, _FIRST_PAUSE, _MAX_ATTEMPTS)
            yield

    async def serve(self) -> None:
        """Run every job by its timetable, until cancelled."""
        # A separate worker, so that no run has to wait for the jobs of memory.
        handlers = {CRON_WRITE: self._write, CRON_DELIVER: self._deliver}
        lock = self.config.data / "run" / f"{self.name}-jobs.lock"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Worker(self._queue, handlers, self.clock, lock).run())
            runs, schedules = CronRuns(self.database), dict[str, asyncio.Task[None]]()
            for known in await runs.configured():
                await runs.record_next(known.name, None)  # until its schedule runs
            while True:
                # Taken before the jobs are read, so that no change is missed.
                changed = self._changed
                for name in self._jobs:
                    if name not in schedules or schedules[name].done():
                        schedules[name] = tasks.create_task(self._run_schedule(name, runs))
                self.status.ready(", ".join(self._jobs) or "no jobs in [cron.jobs]")
                await changed.wait()

    def apply_config(self, config: Config) -> None:
        """Use the jobs of another configuration; a run in progress is completed."""
        jobs = read_jobs(config, self.log.chat_log, self.outbox)
        super().apply_config(config)
        self._jobs = jobs
        # A new event for each change wakes all who wait, and nobody has to clear it.
        self._changed.set()
        self._changed = asyncio.Event()

    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question, with the one about jobs."""
        about_jobs = JobTools(self._jobs, door.log.scope, self.clock)
        return [about_jobs, *super().tools_for(door)]

    @tool(reads=True)
    async def system_status(self) -> str:
        """Tell how each process of Terrarium is, and its tokens of today."""
        # Without details: those name channels, and what is told here may be said to all.
        lines = (
            f"{each.name}: {each.state if each.is_fresh else 'gone'},"
            f" {each.tokens_today} tokens today"
            for each in read_reports(self.config.data)
        )
        return "\n".join(lines) or "nothing runs"

    async def _run_schedule(self, name: str, runs: CronRuns) -> None:
        """Enqueue a run of a job whenever it is due, until the job is removed from the
        configuration. Times that were missed while the process was not running count as one."""
        last = await runs.last_run(name)
        if last is None:
            last = self.clock.now()
            await runs.record_run(name, last)
        while job := self._jobs.get(name):
            # If the clock was once wrong, `last` may be years ahead, and the job would not run.
            last = min(last, self.clock.now())
            changing = asyncio.create_task(self._changed.wait())
            due = job.timetable.due(last, self.clock.now())
            sleeping = asyncio.create_task(self.clock.sleep_until(due))
            try:
                await runs.record_next(name, due)
                await asyncio.wait({sleeping, changing}, return_when=asyncio.FIRST_COMPLETED)
                is_due = sleeping.done()
            finally:
                sleeping.cancel()
                changing.cancel()
            if is_due:
                due = job.timetable.due(last, self.clock.now())  # the machine may have slept
                if not await runs.is_paused(name):
                    await runs.enqueue(self._queue, name, due)
                await runs.record_run(name, due)
                last = due
        await runs.record_next(name, None)

    async def _write(self, queued: Job) -> object:
        """Have the model write the text of a run. Return the id of its turn in the job's
        conversation, None if there is nothing to deliver. Raises ModelUnavailable."""
        job = self._jobs.get(queued.payload["job"])
        if job is None:
            return None
        log_window = await job.source.view(self.clock.now()) if job.source else None
        if job.source and not log_window:
            _log.info("cron.nothing_said", job=job.name)
            return None
        conversation = f"cron/{job.name}"
        scope = Scope.from_places(*([job.source.place] if job.source else ()))
        tools: list[object] = []
        if job.source:
            tools = self.tools_for(Door(log=self.log.tools_within(scope)))
        if job.send_to:
            tools.append(MessageTools(self, job, log_window))
        result = await self.turn(
            TurnRequest(
                conversation=conversation,
                who="cron",
                text=job.prompt,
                log_window=log_window,
                tools=tools,
                priority="background",
                trigger="job",
                run=f"{conversation}/{queued.payload['due']}",  # so that no attempt sends it again
                review=job.review,
                origin=Origin(self.name, Identity("cron"), scope, priority="background"),
            )
        )
        if not result.ok:
            raise ModelUnavailable("the model gave no answer")
        # The id and not the text: job results must not contain what people have said, so that a
        # text can be forgotten before it is delivered.
        turns = await self.conversations.turns(conversation)
        return turns[-1].id if result.text else None

    async def _deliver(self, queued: Job) -> None:
        """Deliver the text of a run, unless it has been forgotten since. Raises Undeliverable."""
        job = self._jobs.get(queued.payload["job"])
        written = await self._queue.result(queued.depends_on) if queued.depends_on else None
        if job is None or written is None:
            return
        turns = await self.conversations.turns(f"cron/{job.name}", start=written)
        text = str(turns[0].messages[-1].get("content") or "") if turns else ""
        if turns and turns[0].id == written and text:
            due = datetime.fromisoformat(queued.payload["due"])
            quotes = quotes_of(turns[0].messages[-1])
            await job.delivery.deliver(JobOutput(job.name, due, text, quotes))
            _log.info("cron.delivered", job=job.name, characters=len(text))
            if isinstance(job.delivery, ChannelDelivery):
                about = f"the job {job.name} has said its result"
                await self.signal("job", job.delivery.place, about)


@dataclass(frozen=True, slots=True)
class MessageTools(ToolSource):
    """The tool that sends messages in a run of a job, whose model was shown a window of the log."""

    cron: CronTendril
    job: CronJob
    log_window: LogWindow | None

    def tools(self) -> Iterable[Tool]:
        """Return the tool, whose description lists the channels."""
        return [describe(self.send_message, f"To: {', '.join(self.job.send_to)}")]

    @tool(effect=True, keyed=True, speaks=True, asked=to_send)
    async def send_message(
        self,
        channel: Annotated[str, Field(max_length=200)],
        text: Annotated[str, Field(min_length=1, max_length=_MAX_MESSAGE)],
        key: EffectKey,
        run: RunSoFar,
    ) -> str:
        """Send a short message to a channel now, besides your answer, as the prompt wants it."""
        job, now, log = self.job, self.cron.clock.now(), self.cron.log.chat_log
        place = job.send_to.get(channel)
        if place is None:
            names = ", ".join(job.send_to)
            raise ToolError(f"you may send messages to {names} only; put it into your answer")
        # A line of its own: no client and no other bot takes what it begins with for a command.
        said = f"[{job.name}] {' '.join(text.split())}"
        lines = await self.log_window.recent(MAX_LINES) if self.log_window else ()
        shown = [*run.shown, *map(ShownText.from_event, lines)]
        quotes = await log.quoted_lines(quoted_lines(said, job.prompt, shown))
        outbox = self.cron.outbox
        if free := await outbox.send("irc", place, said, key=key, quotes=quotes, now=now):
            raise ToolError(
                f"not sent: {channel} has had one lately, and may have the next at {free:%H:%M} UTC"
                f" on {free:%Y-%m-%d}; put it into your answer"
            )
        return f"{channel} will be told"


@dataclass(frozen=True, slots=True)
class JobTools:
    """The tool about the `jobs` whose text is delivered to a channel that `scope` covers."""

    jobs: Mapping[str, CronJob]
    scope: Scope
    clock: Clock

    @tool(reads=True)
    async def scheduled_jobs(self) -> str:
        """List the scheduled jobs that deliver something to the channels that the person who asks
        may read, with the next time of each."""
        now, lines = self.clock.now(), []
        for name, job in self.jobs.items():
            place = job.delivery.place if isinstance(job.delivery, ChannelDelivery) else None
            if place and self.scope.covers(place):
                due = job.timetable.after(now)
                lines.append(f"{name}: to {place.channel}, next on {due:%Y-%m-%d %H:%M} UTC")
        return "\n".join(lines) or "none"
