"""What can wake a tendril, in the order in which it does, and what it measures meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm.agent.limits import Profile


class Metric(StrEnum):
    """What is measured, each a value from 0 to 1."""

    MENTIONS = "mention_rate"
    ACTIVITY = "channel_activity"
    QUIET = "silence_after_activity"
    UNANSWERED = "unanswered_question"
    THOUGHTS = "pending_thoughts"
    ENERGY = "energy"


class TriggerKind(StrEnum):
    """A reason to wake. The first that there is counts; those after THOUGHT need energy."""

    DIRECT = "direct_message"
    REACTION = "reaction"
    RESULT = "job_result"
    THOUGHT = "thought"
    ERROR = "channel_error"
    SILENCE = "sudden_silence"
    PRESSURE = "thought_pressure"
    PLUGIN = "plugin_event"
    CONTACT = "proactive_contact"


ALWAYS = frozenset(
    {TriggerKind.DIRECT, TriggerKind.REACTION, TriggerKind.RESULT, TriggerKind.THOUGHT}
)
"""Somebody waits for it, or it was begun already: no lack of energy holds it back."""

ASKED = frozenset({TriggerKind.REACTION})
"""Somebody answers us: the pause between two words unasked does not count. It does for one who
names us in passing, whom nobody would want to see answered each time."""

MEASURED = frozenset({TriggerKind.SILENCE, TriggerKind.PRESSURE, TriggerKind.CONTACT})
"""They have no signal of their own: they follow from what is measured."""

PROFILES: Mapping[TriggerKind, Profile] = {
    TriggerKind.THOUGHT: "thought",
    TriggerKind.PRESSURE: "thought",
    TriggerKind.SILENCE: "proactive",
    TriggerKind.CONTACT: "proactive",
}
"""What a run may do; that of every other kind is an event's."""
