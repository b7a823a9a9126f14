"""Why the model is run for a place, and what of all that is going on there is reason enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from llm.agent.limits import Profile
from llm.attention.energy import Energy
from llm.attention.kind import MEASURED, PROFILES, Kind, Sense
from llm.attention.pressure import CONTACT, PRESSING, contact_pressure
from llm.attention.room import Room
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal


@dataclass(frozen=True, slots=True)
class Wake:
    """A reason to run the model for a place, with the signals that are dealt with by that.

    `person` is the folded nick that it is about, "" where it is about nobody; `anchor` the log's id
    of their line, where there is one.
    """

    kind: Kind
    place: Place
    value: float
    time: datetime
    signals: tuple[Signal, ...] = ()
    person: str = ""
    anchor: int = 0

    @property
    def profile(self) -> Profile:
        """What the run may do."""
        return PROFILES.get(self.kind, "event")


def wake_for(kind: Kind, place: Place, room: Room, energy: Energy, now: datetime) -> Wake | None:
    """The wake of a kind, if there is enough of it."""
    if kind not in MEASURED:
        return _signalled(kind, place, room, now)
    value = _value(kind, room, now)
    least = {Kind.PRESSURE: PRESSING, Kind.CONTACT: CONTACT * energy.factor}.get(kind, 0.0)
    if value == 0 or value < least:
        return None
    if kind is Kind.PRESSURE:
        return Wake(kind, place, value, now, tuple(room.due(Kind.THOUGHT, now)))
    question = room.channel.oldest()
    if kind is Kind.CONTACT and question:
        return Wake(kind, place, value, now, person=question.person)
    return Wake(kind, place, value, now)


def _value(kind: Kind, room: Room, now: datetime) -> float:
    seen = room.seen
    if kind is Kind.SILENCE:
        return seen.silence(now.timestamp())
    if kind is Kind.PRESSURE:
        return seen.value(Sense.THOUGHTS)
    return contact_pressure(
        seen.value(Sense.UNANSWERED), seen.value(Sense.QUIET), seen.value(Sense.MENTIONS)
    )


def _signalled(kind: Kind, place: Place, room: Room, now: datetime) -> Wake | None:
    """The wake of the signals that wait: of one person's, as the next one's are for another run.
    All of them together are its value, so that more of the same overrides what was put off."""
    due = room.due(kind, now) if room.waiting else []
    if not due:
        return None
    own = tuple(signal for signal in due if signal.person == due[0].person)
    value = min(1.0, sum(signal.value for signal in due))
    return Wake(kind, place, value, now, own, own[-1].person, own[-1].anchor)
