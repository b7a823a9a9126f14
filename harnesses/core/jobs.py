"""The jobs, reminders and scheduled questions of all tendrils, as people and admins may see and
change them; `terrarium jobs`.

A person sees and changes their own reminders and scheduled questions. Admins also see those of the
channels, the cron jobs, and the jobs in the background. Nobody sees what others have asked for in
private.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from harnesses.core.services.reminders import REMINDER_JOBS, plan
from llm.scheduling.cron_schedule import parse_zone
from storage.chat_log.event import Place, is_private, without_host
from storage.db.database import Address, Database, other_files
from storage.queues.jobs import FAILED_STATES, OPEN_STATES, CronRuns, Job, Jobs
from storage.queues.reminders import Owner, Reminders
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, align_columns
from terrarium.config import Config, load


class TaskKind(StrEnum):
    """The kinds of tasks; of the last one are the jobs in the background."""

    REMINDER = "reminder"
    QUESTION = "scheduled question"
    CRON = "cron job"
    JOB = "job"


class TaskAction(StrEnum):
    """The actions on a task."""

    RUN = "run now"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of the tendril `store`, whose number there is `number`, of a cron job its name.

    `where` is the place in which it is said or was asked for, "" for none that may be named.
    `due` is None of what has failed; `error` is why. `is_own`: it is the viewer's own.
    """

    store: str
    kind: TaskKind
    number: str
    text: str
    where: str
    due: datetime | None
    state: str
    error: str = ""
    rule: str = ""
    zone: str = "UTC"
    is_own: bool = False
    actions: tuple[TaskAction, ...] = ()

    def __str__(self) -> str:
        """Describe the task in a line, for people."""
        text = self.text
        if self.due:
            due = self.due.astimezone(parse_zone(self.zone))
            text = f"{due:%a %Y-%m-%d %H:%M} {self.zone}: {text}"
        if self.rule:
            text += " (repeated)"
        if self.state != "pending":
            text += f" ({self.state})"
        return f"{text}: {self.error}" if self.error else text

    @property
    def name(self) -> str:
        """The name of the task, unique among those of its tendril."""
        is_reminder = self.kind in (TaskKind.REMINDER, TaskKind.QUESTION)
        return f"reminder-{self.number}" if is_reminder else self.number


async def list_tasks(
    stores: Mapping[str, Database], owners: Collection[Owner], *, is_admin: bool
) -> Sequence[Task]:
    """Return the tasks that the `owners`, one person under all their identities, may see; the next
    one first, and what has failed last. Raises StorageError."""
    found: list[Task] = []
    for store, database in stores.items():
        reminders = Reminders(database)
        own = {each.id for owner in owners for each in await reminders.for_owner(owner)}
        for each in await reminders.all():
            is_shown = is_admin and not each.private and not is_private(each.place.channel)
            if not (each.id in own or is_shown):
                continue
            pausing = TaskAction.RESUME if each.is_paused else TaskAction.PAUSE
            found.append(
                Task(
                    store=store,
                    kind=TaskKind.QUESTION if each.asks else TaskKind.REMINDER,
                    number=str(each.id),
                    text=each.text,
                    where=_name_of(each.place),
                    due=each.due,
                    state="paused" if each.is_paused else "pending",
                    rule=each.rule,
                    zone=each.zone,
                    is_own=each.id in own,
                    actions=(TaskAction.RUN, pausing, TaskAction.CANCEL),
                )
            )
        if is_admin:
            found += [
                Task(
                    store=store,
                    kind=TaskKind.CRON,
                    number=each.name,
                    text=each.name,
                    where="",
                    due=each.next_run,
                    state="paused" if each.is_paused else "pending",
                    actions=(
                        TaskAction.RUN,
                        TaskAction.RESUME if each.is_paused else TaskAction.PAUSE,
                    ),
                )
                for each in await CronRuns(database).configured()
            ]
            jobs = await Jobs(database).all(*OPEN_STATES, *FAILED_STATES)
            found += _job_tasks(store, jobs)
    far = datetime.max.replace(tzinfo=UTC)
    return sorted(found, key=lambda each: (each.due or far, each.store, each.number))


async def act(
    stores: Mapping[str, Database], task: Task, action: TaskAction, now: datetime
) -> bool:
    """Do something to a task that `list_tasks` has just returned, `now`; return False if it is gone
    or over, or if that cannot be done to it. Raises StorageError."""
    if action not in task.actions:
        return False
    database = stores[task.store]
    if task.kind is TaskKind.CRON:
        runs = CronRuns(database)
        if action is TaskAction.RUN:
            await runs.enqueue(Jobs(database), task.number, now)
        else:
            await runs.pause(task.number, action is TaskAction.PAUSE)
        return True
    if task.kind is TaskKind.JOB:
        jobs = Jobs(database, lambda: now)
        change = {
            TaskAction.RUN: jobs.resume,
            TaskAction.PAUSE: jobs.pause,
            TaskAction.RESUME: jobs.resume,
            TaskAction.RETRY: jobs.retry,
            TaskAction.CANCEL: jobs.cancel,
        }[action]
        return await change(int(task.number))
    reminders = Reminders(database)
    reminder = await reminders.get(int(task.number))
    if reminder is None:
        return False
    if action is TaskAction.CANCEL:
        return await reminders.remove(reminder.id)
    await reminders.pause(reminder.id, action is TaskAction.PAUSE)
    if action is TaskAction.RUN or (action is TaskAction.RESUME and reminder.due < now):
        await plan(Jobs(database), await reminders.move(reminder, now))
    return True


def _job_tasks(store: str, jobs: Sequence[Job]) -> Iterator[Task]:
    """Yield the jobs in the background; of those that say reminders only what has failed, as the
    others are shown as reminders."""
    for job in jobs:
        failed = job.state in FAILED_STATES
        if job.kind in REMINDER_JOBS and not failed:
            continue
        actions: tuple[TaskAction, ...] = (TaskAction.CANCEL,)
        if failed:
            actions = (TaskAction.RETRY,)
        elif job.state == "paused":
            actions = (TaskAction.RESUME, TaskAction.CANCEL)
        elif job.state == "pending":
            actions = (TaskAction.RUN, TaskAction.PAUSE, TaskAction.CANCEL)
        network, _, room = str(job.payload.get("room", "")).partition("/")
        yield Task(
            store=store,
            kind=TaskKind.JOB,
            number=str(job.id),
            text=" ".join(filter(None, [job.kind, str(job.payload.get("job", ""))])),
            where=_name_of(Place(network, room)) if room else "",
            due=None if failed else job.run_at,
            state=job.state,
            error=job.error,
            actions=actions,
        )


def _name_of(place: Place) -> str:
    """Return the name of a channel; a private place has one that only its owner may read."""
    private = is_private(place.channel)
    return f"{place.network}, in private" if private else without_host(str(place))


@asynccontextmanager
async def open_stores(config: Config, *opened: Database) -> AsyncIterator[Mapping[str, Database]]:
    """Open the stores of all tendrils, by the tendril's name, except those that are `opened`
    already. Raises StorageError."""
    known = {database.address: database for database in opened}
    log = log_address(config)
    addresses: dict[str, Address] = {}
    if isinstance(log, Path):
        addresses = {path.stem: path for path in other_files(config.data, log)}
        addresses |= {"irc": log} if log.exists() else {}
    else:
        async with Database.open(log) as database:
            addresses = {**await database.neighbours(config.data), "irc": log}
    async with AsyncExitStack() as stack:
        for address in addresses.values():
            if address not in known:
                known[address] = await stack.enter_async_context(Database.open(address))
        yield {name: known[address] for name, address in addresses.items()}


jobs = typer.Typer(
    help="List, run, pause, retry and drop the jobs of tendrils. The tendrils may be running.",
    no_args_is_help=True,
)

_MAX_PAYLOAD_CHARS = 60  # characters of a payload in the list
_HEAD = ("tendril", "name", "kind", "state", "attempts", "due", "what", "error")

Tendril = Annotated[str, typer.Argument(metavar="TENDRIL", help="Name of the tendril, as listed.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name or number, as listed.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Its number, as listed.")]


@jobs.command("list")
def list_(
    dead: Annotated[bool, typer.Option("--dead", help="Only jobs that have failed.")] = False,
    done: Annotated[bool, typer.Option("--done", help="Also jobs that are done.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """List the jobs of all tendrils. Times are UTC."""
    states = FAILED_STATES if dead else (*OPEN_STATES, *FAILED_STATES, *(["done"] if done else []))

    async def find() -> list[Sequence[str]]:
        found: list[Sequence[str]] = []
        async with open_stores(load(config, data)) as stores:
            for task in () if dead else await list_tasks(stores, (), is_admin=True):
                if task.kind is not TaskKind.JOB:
                    due = f"{task.due:%Y-%m-%d %H:%M}" if task.due else ""
                    found.append(
                        (task.store, task.name, task.kind, task.state, "", due, task.text, "")
                    )
            for tendril, database in stores.items():
                for job in await Jobs(database).all(*states):
                    if job.kind in REMINDER_JOBS and job.state in OPEN_STATES:
                        continue
                    what = json.dumps(dict(job.payload))
                    if len(what) > _MAX_PAYLOAD_CHARS:
                        what = f"{what[:_MAX_PAYLOAD_CHARS]}..."
                    attempts = f"{job.attempts}/{job.max_attempts}"
                    due = f"{job.run_at:%Y-%m-%d %H:%M}"
                    row = (tendril, str(job.id), job.kind, job.state, attempts, due, what)
                    found.append((*row, job.error))
        return found

    rows = asyncio.run(find())
    typer.echo(align_columns([_HEAD, *rows]) if rows else "no jobs")


def _action(action: TaskAction, done: str) -> Callable[..., None]:
    """Return the command that does something to a task, which is `done` then."""

    def command(
        tendril: Tendril, name: Name, config: ConfigFile = None, data: DataFolder = Path("data")
    ) -> None:
        asyncio.run(_act(load(config, data), tendril, name, action))
        typer.echo(f"{name} of {tendril} {done}")

    return command


jobs.command("run", help="Run a job, a cron job or a reminder now.")(
    _action(TaskAction.RUN, "runs within half a minute")
)
jobs.command("pause", help="Pause a job, a cron job or a reminder, until it is resumed.")(
    _action(TaskAction.PAUSE, "is paused")
)
jobs.command("resume", help="Resume what is paused.")(_action(TaskAction.RESUME, "is resumed"))
jobs.command("retry", help="Queue a failed job again, with the jobs that depend on it.")(
    _action(TaskAction.RETRY, "is queued again; it runs within half a minute")
)


@jobs.command()
def drop(
    tendril: Tendril, number: Number, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Remove a job; jobs that depend on it fail. A running job is not interrupted."""

    async def remove(settings: Config) -> bool:
        async with open_stores(settings) as stores:
            return await Jobs(_store(settings, stores, tendril)).drop(number)

    if not asyncio.run(remove(load(config, data))):
        raise TendrilError(f"{tendril} has no job {number}; see `terrarium jobs list`")
    typer.echo(f"job {number} of {tendril} is dropped")


def _store(config: Config, stores: Mapping[str, Database], tendril: str) -> Database:
    if tendril not in stores:
        known = ", ".join(stores) or "none"
        raise TendrilError(f"no tendril {tendril} keeps jobs in {config.data}; there are: {known}")
    return stores[tendril]


async def _act(config: Config, tendril: str, name: str, action: TaskAction) -> None:
    async with open_stores(config) as stores:
        _store(config, stores, tendril)
        for task in await list_tasks(stores, (), is_admin=True):
            if (task.store, task.name) == (tendril, name) and await act(
                stores, task, action, datetime.now(UTC)
            ):
                return
    message = f"{tendril} has no {name} to {action}: see `terrarium jobs list`"
    if action is TaskAction.RETRY:
        message += "; if jobs depend on one another, retry the first of them"
    raise TendrilError(message)
