"""Reminders: jobs that tell somebody something later, and the tools by which a model sets them.

No model is asked to tell one. They are jobs of a worker of their own, so that none waits behind
what the model is busy with. Questions that people schedule are kept with them, listed and cancelled
in the same way; asking them is up to a tendril that can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from llm.messages.message import escape_tags
from llm.scheduling.cron_schedule import Timetable, is_zone, parse_zone
from llm.scheduling.time_phrases import FORMS, NotUnderstood, ResolvedTime, parse_time
from llm.scheduling.worker import Worker
from llm.tools.toolbox import ToolError, tool
from storage.chat_log.event import PendingEvent, Place
from storage.chat_log.opt_outs import person_of
from storage.db.database import Database, to_micros
from storage.memory.memories import Memories
from storage.queues.jobs import Job, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders
from terrarium.clock import Clock

LONGEST = 300
"""Characters of a reminder."""

TIMEZONE_FACT = "timezone"
"""The fact about a person that names their time zone."""

_KIND, _QUESTION = "reminder", "scheduled"
_KEPT = timedelta(days=30)  # for which a reminder waits for somebody who does not come
_MOST_QUESTIONS = 5  # that one person may have scheduled
_LATER = timedelta(minutes=1)  # until a question is asked that could not be asked yet
_GIVEN_UP = timedelta(hours=1)  # from when on it waits for its next time
_LONGEST = timedelta(days=31)  # between two times of a question
_LATE = timedelta(minutes=2)  # from when on we say that it is late


@dataclass(frozen=True, slots=True)
class Requester:
    """A person who asks for something that outlives the conversation, and where they ask.

    `room` and `person` are the names under which memory keeps the place and the person.
    `question` is the line that asks, on its way into the log; `queued` the time at which a request
    that had to wait for its turn was made. An admin (`is_admin`) may cancel what others asked for.
    """

    owner: Owner
    place: Place
    private: bool
    room: str
    person: str
    question: PendingEvent | None = None
    queued: datetime | None = None
    is_admin: bool = False

    async def question_event_id(self) -> int:
        """Return the log's id of the line that asks, once it is there; 0 when none is logged."""
        return await self.question.wait_visible() if self.question else 0


SayReminder = Callable[[Reminder, str], Awaitable[timedelta | None]]
"""Says a text to whom a reminder belongs, where it belongs; returns how long to wait if that is not
possible now."""


class RunOutcome(Enum):
    """The end of a run of a scheduled question: `ASKED`, or `ABSENT` when its owner was not there;
    `LATER` when it could not be asked yet; `ENDED` when it is not to be asked any more."""

    ASKED = "asked"
    ABSENT = "absent"
    LATER = "later"
    ENDED = "ended"


Ask = Callable[[Reminder], Awaitable[RunOutcome]]
"""Asks the model a scheduled question in the name of its owner."""

_log = structlog.get_logger()


class ReminderService:
    """The reminders of one tendril, in its `database`.

    `zone` returns the name of the time zone that counts for people of whom memory knows none.
    `lock` is a file that whoever says reminders holds.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        zone: Callable[[], str],
        say: SayReminder,
        lock: Path,
    ) -> None:
        self._kept, self._clock, self._default_zone, self._say = (
            Reminders(database),
            clock,
            zone,
            say,
        )
        self._memories = Memories(database)
        self._lock = lock
        self._jobs, self._questions = Jobs(database, clock.now), Jobs(database, clock.now)
        self._worker = Worker(self._jobs, {_KIND: self._fire}, clock, lock)

    async def run(self) -> None:
        """Say what is due until cancelled; what was due while we were away, once."""
        for reminder in await self._kept.all():
            await self._plan(reminder)
        await self._worker.run()

    async def parse_time(self, requester: Requester, text: str) -> tuple[ResolvedTime, str]:
        """Return the time that a text names, as whoever asks means it, and the rest of it. Raises
        NotUnderstood."""
        asked = requester.queued or self._clock.now()
        return parse_time(text, asked, await self.zone_of(requester))

    async def zone_of(self, requester: Requester) -> tzinfo:
        """Return the time zone in which whoever asks means their times. Raises StorageError."""
        return parse_zone(await self._zone(requester))

    async def add(
        self, requester: Requester, time: ResolvedTime, text: str, *, asks: bool = False
    ) -> str:
        """Keep a reminder for whoever asks, or with `asks` a question to ask in their name; return
        what to tell them. Raises NotUnderstood."""
        if not text.strip():
            raise NotUnderstood("What am I to do then?" if asks else "Of what?")
        if asks and sum(each.asks for each in await self._kept.for_owner(requester.owner)) >= (
            _MOST_QUESTIONS
        ):
            raise NotUnderstood(
                f"You have scheduled {_MOST_QUESTIONS} questions already; cancel one first."
            )
        if len(text) > LONGEST:
            raise NotUnderstood(f"A reminder has at most {LONGEST} characters.")
        reminder = Reminder(
            requester.owner,
            requester.place,
            requester.private,
            text.strip(),
            time.due,
            time.rule,
            await self._zone(requester),
            await requester.question_event_id(),
            asks,
        )
        kept = await self._kept.add(reminder)
        if kept is None:
            raise NotUnderstood("There are too many reminders already; cancel one first.")
        await self._plan(kept)
        again = ", and again each time" if kept.rule else ""
        if asks:
            return f"I will do that on {_format_due(kept)}{again}. Its number is {kept.id}."
        return f"I will remind you on {_format_due(kept)}{again}. Its number is {kept.id}."

    async def list_text(self, requester: Requester) -> str:
        """Return the reminders of whoever asks."""
        found = await self._kept.for_owner(requester.owner)
        lines = [
            f"{reminder.id}:"
            f" {_format_due(reminder)}{' (again and again)' if reminder.rule else ''}:"
            f" {'to do: ' if reminder.asks else ''}{reminder.text}"
            for reminder in found
        ]
        return "\n".join(lines) or "I am to remind you of nothing."

    async def cancel(self, requester: Requester, number: int) -> bool:
        """Drop a reminder of whoever asks, an admin anybody's; whether there was one."""
        return await self._kept.remove(number, None if requester.is_admin else requester.owner)

    async def cancel_own(self, requester: Requester, words: str) -> int | None:
        """Drop the one reminder of whoever asks that has some words in it, or all of them; how
        many that were, None when several fit the words."""
        owner = requester.owner
        own = await self._kept.for_owner(owner)
        found = [each for each in own if words == "all" or words in each.text.lower()]
        if words != "all" and len(found) > 1:
            return None
        return sum([await self._kept.remove(each.id, owner) for each in found])

    async def _zone(self, requester: Requester) -> str:
        """Return the name of the zone that memory has of a person, else the default."""
        person = person_of(requester.person)
        fact = await self._memories.fact(requester.room, person, TIMEZONE_FACT)
        return fact.text if fact and is_zone(fact.text) else self._default_zone()

    async def _plan(self, reminder: Reminder) -> None:
        kind, jobs = (_QUESTION, self._questions) if reminder.asks else (_KIND, self._jobs)
        key = f"{_KIND}/{reminder.id}/{to_micros(reminder.due)}"
        await jobs.add(kind, {"id": reminder.id}, key=key, run_at=reminder.due)

    async def run_questions(self, ask: Ask) -> None:
        """Ask the scheduled questions that are due, until cancelled."""

        async def fire(job: Job) -> None:
            await self._fire_question(job, ask)

        lock = self._lock.with_stem(f"{self._lock.stem}-questions")
        await Worker(self._questions, {_QUESTION: fire}, self._clock, lock).run()

    async def _fire_question(self, job: Job, ask: Ask) -> None:
        """Ask a question, or later for an hour; then it waits for its next time."""
        reminder, now = await self._kept.get(job.payload["id"]), self._clock.now()
        if reminder is None or reminder.due > now:
            return
        outcome = await ask(reminder)
        if outcome is RunOutcome.LATER and now - reminder.due < _GIVEN_UP:
            await self._questions.postpone(job, now + _LATER)
            return
        _log.info("question.scheduled", reminder=reminder.id, outcome=outcome.value)
        if outcome is RunOutcome.ENDED:
            await self._kept.remove(reminder.id)
        else:
            await self._move_on(reminder)

    async def _move_on(self, reminder: Reminder) -> None:
        """Plan the next time of what comes again, and drop what came once."""
        if reminder.rule:
            table = Timetable.parse(reminder.rule, reminder.zone)
            await self._plan(await self._kept.move(reminder, table.after(self._clock.now())))
        else:
            await self._kept.remove(reminder.id)

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
            "reminder.said",
            network=reminder.place.network,
            reminder=reminder.id,
            in_vain=pause is not None,
        )
        await self._move_on(reminder)


def previous_due(reminder: Reminder) -> datetime:
    """Return the time before `due` at which a reminder was due, a month before at most; of one that
    comes once, a day before."""
    if not reminder.rule:
        return reminder.due - timedelta(days=1)
    table = Timetable.parse(reminder.rule, reminder.zone)
    previous = reminder.due - _LONGEST
    while (coming := table.after(previous)) < reminder.due:
        previous = coming
    return previous


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

    def __init__(self, reminder_service: ReminderService, requester: Requester) -> None:
        self._reminder_service, self._requester = reminder_service, requester

    @tool(effect=True)
    async def remind(
        self,
        when: Annotated[str, Field(max_length=100, description=f"one of: {FORMS}")],
        text: Annotated[str, Field(max_length=LONGEST, description="what to tell them then")],
    ) -> str:
        """Remind the person who asks you of something later, here."""
        try:
            time, rest = await self._reminder_service.parse_time(self._requester, when)
            if rest:
                raise NotUnderstood(f"{rest!r} is no part of a time; use one of: {FORMS}")
            return await self._reminder_service.add(self._requester, time, text)
        except NotUnderstood as error:
            raise ToolError(str(error)) from error

    @tool(reads=True)
    async def reminders(self) -> str:
        """List the reminders of the person who asks you, with their numbers."""
        return escape_tags(await self._reminder_service.list_text(self._requester))

    @tool(effect=True)
    async def cancel_reminder(self, number: Annotated[int, Field(ge=1, lt=2**53)]) -> str:
        """Cancel a reminder of the person who asks you, by its number."""
        if not await self._reminder_service.cancel(self._requester, number):
            raise ToolError(f"they have no reminder {number}")
        return "cancelled"
