"""Why the model is run for a place, and what of all that is going on there is reason enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from llm.agent.limits import Profile
from llm.attention.channel_state import ChannelState
from llm.attention.token_budget import TokenBudget
from llm.attention.trigger_kinds import MEASURED, PROFILES, Metric, TriggerKind
from llm.attention.urgency import CONTACT, PRESSING, contact_pressure
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal


@dataclass(frozen=True, slots=True)
class Trigger:
    """A reason to run the model for a place, with the signals that are dealt with by that.

    `person` is the folded nick that it is about, "" where it is about nobody; `event_id` the log's
    id of their line, where there is one.
    """

    kind: TriggerKind
    place: Place
    value: float
    time: datetime
    signals: tuple[Signal, ...] = ()
    person: str = ""
    event_id: int = 0

    @property
    def profile(self) -> Profile:
        """What the run may do."""
        return PROFILES.get(self.kind, "event")


def find_trigger(
    kind: TriggerKind, place: Place, state: ChannelState, energy: TokenBudget, now: datetime
) -> Trigger | None:
    """The wake of a kind, if there is enough of it."""
    if kind not in MEASURED:
        return _signal_trigger(kind, place, state, now)
    value = _value(kind, state, now)
    least = {TriggerKind.PRESSURE: PRESSING, TriggerKind.CONTACT: CONTACT * energy.factor}.get(
        kind, 0.0
    )
    if value == 0 or value < least:
        return None
    if kind is TriggerKind.PRESSURE:
        return Trigger(kind, place, value, now, tuple(state.due(TriggerKind.THOUGHT, now)))
    question = state.channel.oldest()
    if kind is TriggerKind.CONTACT and question:
        return Trigger(kind, place, value, now, person=question.person)
    return Trigger(kind, place, value, now)


def _value(kind: TriggerKind, state: ChannelState, now: datetime) -> float:
    seen = state.seen
    if kind is TriggerKind.SILENCE:
        return seen.silence(now.timestamp())
    if kind is TriggerKind.PRESSURE:
        return seen.value(Metric.THOUGHTS)
    return contact_pressure(
        seen.value(Metric.UNANSWERED), seen.value(Metric.QUIET), seen.value(Metric.MENTIONS)
    )


def _signal_trigger(
    kind: TriggerKind, place: Place, state: ChannelState, now: datetime
) -> Trigger | None:
    """The wake of the signals that wait: of one person's, as the next one's are for another run.
    All of them together are its value, so that more of the same overrides what was put off."""
    due = state.due(kind, now) if state.pending_signals else []
    if not due:
        return None
    own = tuple(signal for signal in due if signal.person == due[0].person)
    value = min(1.0, sum(signal.value for signal in due))
    return Trigger(kind, place, value, now, own, own[-1].person, own[-1].event_id)
