"""Reminders: jobs that tell somebody something later, and the tools by which a model sets them.

No model is asked to tell one. They are jobs of a worker of their own, so that none waits behind
what the model is busy with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from harnesses.irc.policy.requests import CommandRequest
from llm.messages.escaping import escape_tags
from llm.scheduling.cron_schedule import Timetable, parse_zone
from llm.scheduling.time_phrases import FORMS, NotUnderstood, ResolvedTime, parse_time
from llm.scheduling.worker import Worker
from llm.tools.toolbox import ToolError, tool
from storage.db.database import Database, to_micros
from storage.queues.jobs import Job, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders
from terrarium.clock import Clock

LONGEST = 300
"""Characters of a reminder."""

TIMEZONE_FACT = "timezone"
"""The fact about a person that names their time zone."""

_KIND = "reminder"
_KEPT = timedelta(days=30)  # for which a reminder waits for somebody who does not come
_LATE = timedelta(minutes=2)  # from when on we say that it is late

Say = Callable[[Reminder, str], Awaitable[timedelta | None]]
"""Says a text to whom a reminder belongs, where it belongs; until when to wait if that is not
possible."""

Zone = Callable[[CommandRequest], Awaitable[str]]
"""The name of the time zone in which whoever asks means their times."""

_log = structlog.get_logger()


class ReminderService:
    """The reminders of one tendril. `lock` is a file that whoever says reminders holds."""

    def __init__(self, database: Database, clock: Clock, zone: Zone, say: Say, lock: Path) -> None:
        self._kept, self._clock, self._zone, self._say = Reminders(database), clock, zone, say
        self._jobs = Jobs(database, clock.now)
        self._worker = Worker(self._jobs, {_KIND: self._fire}, clock, lock)

    async def run(self) -> None:
        """Say what is due until cancelled; what was due while we were away, once."""
        for reminder in await self._kept.all():
            await self._plan(reminder)
        await self._worker.run()

    async def parse_time(self, request: CommandRequest, text: str) -> tuple[ResolvedTime, str]:
        """Return the time that a text names, as whoever asks means it, and the rest of it. Raises
        NotUnderstood."""
        asked = request.queued or self._clock.now()
        return parse_time(text, asked, await self.zone_of(request))

    async def zone_of(self, request: CommandRequest) -> tzinfo:
        """Return the time zone in which whoever asks means their times. Raises StorageError."""
        return parse_zone(await self._zone(request))

    async def add(self, request: CommandRequest, time: ResolvedTime, text: str) -> str:
        """Keep a reminder for whoever asks; what to tell them. Raises NotUnderstood."""
        if not text.strip():
            raise NotUnderstood("Of what?")
        if len(text) > LONGEST:
            raise NotUnderstood(f"A reminder has at most {LONGEST} characters.")
        reminder = Reminder(
            owner_of(request),
            request.place,
            request.private,
            text.strip(),
            time.due,
            time.rule,
            await self._zone(request),
            await request.pending_event.wait_visible(),
        )
        kept = await self._kept.add(reminder)
        if kept is None:
            raise NotUnderstood("There are too many reminders already; cancel one first.")
        await self._plan(kept)
        again = ", and again each time" if kept.rule else ""
        return f"I will remind you on {_format_due(kept)}{again}. Its number is {kept.id}."

    async def list_text(self, request: CommandRequest) -> str:
        """Return the reminders of whoever asks."""
        found = await self._kept.for_owner(owner_of(request))
        lines = [
            f"{reminder.id}:"
            f" {_format_due(reminder)}{' (again and again)' if reminder.rule else ''}:"
            f" {reminder.text}"
            for reminder in found
        ]
        return "\n".join(lines) or "I am to remind you of nothing."

    async def cancel(self, request: CommandRequest, number: int) -> bool:
        """Drop a reminder of whoever asks, an admin anybody's; whether there was one."""
        return await self._kept.remove(number, None if request.admin else owner_of(request))

    async def cancel_own(self, request: CommandRequest, words: str) -> int | None:
        """Drop the one reminder of whoever asks that has some words in it, or all of them; how
        many that were, None when several fit the words."""
        owner = owner_of(request)
        own = await self._kept.for_owner(owner)
        found = [each for each in own if words == "all" or words in each.text.lower()]
        if words != "all" and len(found) > 1:
            return None
        return sum([await self._kept.remove(each.id, owner) for each in found])

    async def _plan(self, reminder: Reminder) -> None:
        key = f"{_KIND}/{reminder.id}/{to_micros(reminder.due)}"
        await self._jobs.add(_KIND, {"id": reminder.id}, key=key, run_at=reminder.due)

    async def _fire(self, job: Job) -> None:
        """Say a reminder, or later where we are not there; then it has been said, or has its next
        time. A crash in between says it again: better twice than never."""
        reminder = await self._kept.get(job.payload["id"])
        now = self._clock.now()
        if reminder is None or reminder.due > now:
            return
        pause = await self._say(reminder, _words(reminder, now))
        if pause and now - reminder.due < _KEPT:
            await self._jobs.postpone(job, now + pause)
            return
        _log.info(
            "irc.reminded",
            network=reminder.place.network,
            reminder=reminder.id,
            in_vain=pause is not None,
        )
        if reminder.rule:
            table = Timetable.parse(reminder.rule, reminder.zone)
            await self._plan(await self._kept.move(reminder, table.after(now)))
        else:
            await self._kept.remove(reminder.id)


def owner_of(request: CommandRequest) -> Owner:
    """Return whoever asks as the owner of a reminder."""
    who = request.who
    return Owner(request.network.name, who.nick, who.user, who.host, who.account)


def _words(reminder: Reminder, now: datetime) -> str:
    late = (
        f", due on {_format_due(reminder)} while I was away" if now - reminder.due > _LATE else ""
    )
    return f"reminder{late}: {reminder.text}"


def _format_due(reminder: Reminder) -> str:
    local = reminder.due.astimezone(parse_zone(reminder.zone))
    return f"{local:%a %Y-%m-%d at %H:%M} {reminder.zone}"


class ReminderTools:
    """The same for the model, in the name of whoever asks, and of nobody else."""

    def __init__(self, reminder_service: ReminderService, request: CommandRequest) -> None:
        self._reminder_service, self._request = reminder_service, request

    @tool(effect=True)
    async def remind(
        self,
        when: Annotated[str, Field(max_length=100, description=f"one of: {FORMS}")],
        text: Annotated[str, Field(max_length=LONGEST, description="what to tell them then")],
    ) -> str:
        """Remind the person who asks you of something later, here."""
        try:
            time, rest = await self._reminder_service.parse_time(self._request, when)
            if rest:
                raise NotUnderstood(f"{rest!r} is no part of a time; use one of: {FORMS}")
            return await self._reminder_service.add(self._request, time, text)
        except NotUnderstood as error:
            raise ToolError(str(error)) from error

    @tool(reads=True)
    async def reminders(self) -> str:
        """List the reminders of the person who asks you, with their numbers."""
        return escape_tags(await self._reminder_service.list_text(self._request))

    @tool(effect=True)
    async def cancel_reminder(self, number: Annotated[int, Field(ge=1, lt=2**53)]) -> str:
        """Cancel a reminder of the person who asks you, by its number."""
        if not await self._reminder_service.cancel(self._request, number):
            raise ToolError(f"they have no reminder {number}")
        return "cancelled"
