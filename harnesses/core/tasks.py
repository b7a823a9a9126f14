"""The reminders, scheduled questions and jobs of all tendrils, as people and admins may see them.

A person sees and changes their own reminders and scheduled questions. Admins also see those of the
channels, the cron jobs, and the jobs in the background. Nobody sees what others have asked for in
private.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from harnesses.core.services.reminders import REMINDER_JOBS, plan
from llm.scheduling.cron_schedule import parse_zone
from storage.chat_log.event import Place, is_private, without_host
from storage.db.database import Database
from storage.queues.jobs import FAILED_STATES, OPEN_STATES, CronRuns, Job, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders


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
        when = (
            f"{self.due.astimezone(parse_zone(self.zone)):%a %Y-%m-%d %H:%M} {self.zone}: "
            if self.due
            else ""
        )
        again, state = (
            " (repeated)" * bool(self.rule),
            "" if self.state == "pending" else f" ({self.state})",
        )
        return f"{when}{self.text}{again}{state}" + f": {self.error}" * bool(self.error)

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
            if each.id in own or is_shown:
                found.append(_reminder_task(store, each, is_own=each.id in own))
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


def _reminder_task(store: str, reminder: Reminder, *, is_own: bool) -> Task:
    pausing = TaskAction.RESUME if reminder.is_paused else TaskAction.PAUSE
    return Task(
        store=store,
        kind=TaskKind.QUESTION if reminder.asks else TaskKind.REMINDER,
        number=str(reminder.id),
        text=reminder.text,
        where=_name_of(reminder.place),
        due=reminder.due,
        state="paused" if reminder.is_paused else "pending",
        rule=reminder.rule,
        zone=reminder.zone,
        is_own=is_own,
        actions=(TaskAction.RUN, pausing, TaskAction.CANCEL),
    )


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
