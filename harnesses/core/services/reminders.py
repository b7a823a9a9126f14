"""Reminders: jobs that tell people something later.

Delivery needs no model. Reminders have a worker apart from other jobs, so that none waits for a
job that uses the model. Scheduled questions are stored, listed and cancelled in the same way;
asking them is left to the tendrils that can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import Enum
from pathlib import Path

import structlog

from harnesses.core.services.shared_log import LoggedLine, is_public, room_name
from llm.reading.times import NotUnderstood, ResolvedTime, parse_time
from llm.scheduling.cron_schedule import Timetable, is_zone, parse_zone
from llm.scheduling.worker import Worker
from storage.chat_log.event import PendingEvent, Place
from storage.chat_log.opt_outs import person_of
from storage.db.database import Database, to_micros
from storage.memory.memories import Memories
from storage.passages.words import content_stems
from storage.queues.jobs import Job, Jobs
from storage.queues.reminders import Owner, Reminder, Reminders
from terrarium.clock import Clock

MAX_TEXT = 300
"""The most characters of a reminder."""

TIMEZONE_FACT = "timezone"
"""The key of the remembered fact that is a person's time zone."""

_KIND, _QUESTION = REMINDER_JOBS = "reminder", "scheduled"
_DELIVERY_PERIOD = timedelta(days=30)  # how long delivery is tried
_MAX_QUESTIONS = 5  # that one person may have scheduled
_MAX_FROM_ONE = 3  # reminders that a person may have from the same other one
_RETRY_DELAY = timedelta(minutes=1)  # before a question that could not be asked is tried again
_RETRY_PERIOD = timedelta(hours=1)  # after which it waits for its next due time
_MAX_LOOKBACK = timedelta(days=31)  # how far `previous_due` looks back
_LATE_AFTER = timedelta(minutes=2)  # after which a reminder says that it is late


@dataclass(frozen=True, slots=True)
class Requester:
    """A person who sets, lists or cancels reminders, and where they do so.

    `room` and `person` are the keys of the place and the person in memory. `question` is the line
    of the request, on its way into the log. With `is_admin` they may cancel the reminders of
    others.
    """

    owner: Owner
    place: Place
    private: bool
    room: str
    person: str
    question: PendingEvent | None = None
    is_admin: bool = False

    @classmethod
    def from_line(cls, line: LoggedLine) -> Requester:
        """Create the `Requester` for a line: its author, asking at its place."""
        who, place = line.who, line.place
        return cls(
            owner=Owner(place.network, who.nick, who.user, who.host, who.account),
            place=place,
            private=not is_public(place),
            room=room_name(place),
            person=who.key(str.lower),
            question=line.pending,
        )

    async def question_event_id(self) -> int:
        """Return the event id of the request's line once it is in the log, 0 if it is not kept."""
        return await self.question.wait_visible() if self.question else 0


SayReminder = Callable[[Reminder, str], Awaitable[timedelta | None]]
"""Delivers the text of a reminder; returns the delay before the next try, None if it was said."""


class RunOutcome(Enum):
    """The outcome of a run of a scheduled question: `ASKED`, or `ABSENT` when its owner was away;
    `LATER` when it could not be asked yet; `ENDED` when it must not be asked any more."""

    ASKED = "asked"
    ABSENT = "absent"
    LATER = "later"
    ENDED = "ended"


Ask = Callable[[Reminder], Awaitable[RunOutcome]]
"""Asks the model a scheduled question in the name of its owner."""

_log = structlog.get_logger()


class ReminderService:
    """The reminders of one tendril, in its `database`.

    `zone` returns the name of the default time zone, for people whose own is not remembered. `lock`
    is the lock file of the worker: one process at a time delivers reminders.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        zone: Callable[[], str],
        say: SayReminder,
        lock: Path,
    ) -> None:
        self._clock, self._default_zone, self._say, self._lock = clock, zone, say, lock
        self._kept, self._memories = Reminders(database), Memories(database)
        # Two views of the same table, as a change of one wakes only the worker that waits for it.
        self._jobs, self._questions = Jobs(database, clock.now), Jobs(database, clock.now)
        self._worker = Worker(self._jobs, {_KIND: self._fire}, clock, lock)

    async def run(self) -> None:
        """Say due reminders until cancelled; those that were due while we were away, once."""
        for reminder in await self._kept.all():
            await self._schedule(reminder)
        await self._worker.run()

    async def parse_time(self, requester: Requester, text: str) -> tuple[ResolvedTime, str]:
        """Parse the time in a text, in the requester's time zone; return it and the remaining text.
        Raises NotUnderstood."""
        return parse_time(text, self._clock.now(), await self.zone_of(requester))

    async def zone_of(self, requester: Requester) -> tzinfo:
        """Return the time zone of the requester, else the default one. Raises StorageError."""
        return parse_zone(await self._zone(requester))

    async def add(
        self, requester: Requester, time: ResolvedTime, text: str, *, asks: bool = False
    ) -> str:
        """Store a reminder, or with `asks` a scheduled question; return the confirmation. Raises
        NotUnderstood, worded for people: no text, a text that is too long, or too many."""
        if not text.strip():
            raise NotUnderstood("What shall I do then?" if asks else "What about?")
        known = await self._kept.for_owner(requester.owner) if asks else ()
        if sum(each.asks for each in known) >= _MAX_QUESTIONS:
            raise NotUnderstood(
                f"You already have {_MAX_QUESTIONS} scheduled questions; cancel one first."
            )
        if len(text) > MAX_TEXT:
            raise NotUnderstood(f"A reminder has at most {MAX_TEXT} characters.")
        reminder = Reminder(
            requester.owner,
            requester.place,
            requester.private,
            text.strip(),
            time.due,
            time.rule,
            await self._zone(requester),
            await requester.question_event_id(),  # erasing this line ends a scheduled question
            asks,
        )
        kept = await self._kept.add(reminder)
        if kept is None:
            raise NotUnderstood("You have too many reminders; cancel one first.")
        await self._schedule(kept)
        what = "do that" if asks else "remind you"
        again = ", and again each time" if kept.rule else ""
        if asks and (kept.private or not requester.is_admin):  # those of admins are the channel's
            again += " that you are here" if kept.rule else ", or once you are back"
        return f"I will {what} on {_format_due(kept)}{again} (reminder {kept.id})."

    async def add_for(
        self, other: Requester, asker: Requester, time: ResolvedTime, text: str
    ) -> str:
        """Store a reminder of somebody else, who is told that the `asker` wanted it; return the
        confirmation.

        It comes once, and its owner can cancel it. Raises NotUnderstood if that must not be; if
        they have too many reminders, the text says so, as those of others may be stored already.
        """
        mark = f" (from {asker.owner.nick})"
        if time.rule:
            raise NotUnderstood("Only the person themselves can ask for a repeated reminder.")
        # Erasing the asker's line removes their words from what others have.
        if not await asker.question_event_id():
            raise NotUnderstood("I keep no reminders for others where nothing is logged.")
        known = await self._kept.for_owner(other.owner)
        if sum(each.text.endswith(mark) for each in known) >= _MAX_FROM_ONE:
            return f"{other.owner.nick}: not done, you have set enough reminders for them."
        try:
            return f"{other.owner.nick}: {await self.add(other, time, text.strip() + mark)}"
        except NotUnderstood as error:
            return f"{other.owner.nick}: not done. {error}"

    async def list_text(self, requester: Requester) -> str:
        """Return the reminders of the requester as text, one in each line, for people."""
        found = await self._kept.for_owner(requester.owner)
        lines = [
            f"{each.id}: {_format_due(each)}{' (repeated)' if each.rule else ''}:"
            f" {'to do: ' if each.asks else ''}{each.text}"
            for each in found
        ]
        return "\n".join(lines) or "You have no reminders."

    async def cancel(self, requester: Requester, number: int) -> bool:
        """Remove a reminder of the requester, or for an admin anybody's; return False if there is
        none."""
        return await self._kept.remove(number, None if requester.is_admin else requester.owner)

    async def cancel_own(self, requester: Requester, words: str) -> Sequence[str] | None:
        """Remove the requester's one reminder that contains `words` or, if none does, has one of
        them; or all of them with "all".

        Return the texts of those removed; None, and none is removed, if several fit the words.
        """
        owner = requester.owner
        own = await self._kept.for_owner(owner)
        found = [each for each in own if words == "all" or words in each.text.lower()]
        if not found:
            stems = content_stems(words)
            found = [each for each in own if stems & content_stems(each.text)]
        if words != "all" and len(found) > 1:
            return None
        return [each.text for each in found if await self._kept.remove(each.id, owner)]

    async def _zone(self, requester: Requester) -> str:
        """Return the name of the requester's remembered time zone, else of the default."""
        person = person_of(requester.person)
        fact = await self._memories.fact(requester.room, person, TIMEZONE_FACT)
        return fact.text if fact and is_zone(fact.text) else self._default_zone()

    async def _schedule(self, reminder: Reminder) -> None:
        await plan(self._questions if reminder.asks else self._jobs, reminder)

    async def run_questions(self, ask: Ask) -> None:
        """Ask the scheduled questions that are due, until cancelled."""

        async def fire(job: Job) -> None:
            # Retries go on for an hour or, for a question that is asked once, until its owner is
            # back; then its next time is planned, if it has one.
            reminder, now = await self._due(job), self._clock.now()
            if reminder is None:
                return
            outcome = await ask(reminder)
            waits = outcome is RunOutcome.LATER and now - reminder.due < _RETRY_PERIOD
            if outcome is RunOutcome.ABSENT and not reminder.rule:  # it is kept for its owner
                waits = now - reminder.due < _DELIVERY_PERIOD
            if waits:
                await self._questions.postpone(job, now + _RETRY_DELAY)
                return
            _log.info("question.scheduled", reminder=reminder.id, outcome=outcome.value)
            if outcome is RunOutcome.ENDED:
                await self._kept.remove(reminder.id)
            else:
                await self._reschedule(reminder)

        # A second lock, as a worker is named after it, and takes back what runs under its name.
        lock = self._lock.with_stem(f"{self._lock.stem}-questions")
        await Worker(self._questions, {_QUESTION: fire}, self._clock, lock).run()

    async def _due(self, job: Job) -> Reminder | None:
        """Return the reminder of a job; None if it was cancelled, has moved on to a later time, or
        is paused, which leaves out this time of it."""
        reminder = await self._kept.get(job.payload["id"])
        if reminder is None or reminder.due > self._clock.now():
            return None
        if not reminder.is_paused:
            return reminder
        if reminder.rule:  # one that comes once waits to be resumed
            await self._reschedule(reminder)
        return None

    async def _reschedule(self, reminder: Reminder) -> None:
        """Plan the next time of a recurring reminder; remove any other."""
        if reminder.rule:
            table = Timetable.parse(reminder.rule, reminder.zone)
            await self._schedule(await self._kept.move(reminder, table.after(self._clock.now())))
        else:
            await self._kept.remove(reminder.id)

    async def _fire(self, job: Job) -> None:
        """Say a due reminder, or postpone it; then plan its next time, if it has one.

        Delivery is at least once: after a crash in between it is said again.
        """
        reminder, now = await self._due(job), self._clock.now()
        if reminder is None:
            return
        is_late = now - reminder.due > _LATE_AFTER
        late = f", due on {_format_due(reminder)} while I was away" if is_late else ""
        pause = await self._say(reminder, f"reminder{late}: {reminder.text}")
        if pause and now - reminder.due < _DELIVERY_PERIOD:
            await self._jobs.postpone(job, now + pause)
            return
        network, in_vain = reminder.place.network, pause is not None
        _log.info("reminder.said", network=network, reminder=reminder.id, in_vain=in_vain)
        await self._reschedule(reminder)


async def plan(jobs: Jobs, reminder: Reminder) -> None:
    """Add the job that says a reminder when it is due, to the jobs of the reminder's database."""
    # The key contains the due time: adding it again does nothing, and a reminder that moves gets
    # another one.
    key = f"{_KIND}/{reminder.id}/{to_micros(reminder.due)}"
    kind = _QUESTION if reminder.asks else _KIND
    await jobs.add(kind, {"id": reminder.id}, key=key, run_at=reminder.due)


def previous_due(reminder: Reminder) -> datetime:
    """Return the due time of a recurring reminder before the present one, 31 days back at most; for
    any other, the time one day before it is due."""
    if not reminder.rule:
        return reminder.due - timedelta(days=1)
    table = Timetable.parse(reminder.rule, reminder.zone)
    # `after` only goes forward, so walk up to `due` from the earliest time.
    previous = reminder.due - _MAX_LOOKBACK
    while (coming := table.after(previous)) < reminder.due:
        previous = coming
    return previous


def _format_due(reminder: Reminder) -> str:
    local = reminder.due.astimezone(parse_zone(reminder.zone))
    return f"{local:%a %Y-%m-%d at %H:%M} {reminder.zone}"
