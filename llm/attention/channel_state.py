"""What attention knows of one place: its lines, what was measured, the signals that wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from llm.attention.aggregate import Aggregate
from llm.attention.channel_activity import ChannelActivity
from llm.attention.metric_sampling import CHANNEL, MetricSampler, MetricSet
from llm.attention.trigger_kinds import Metric, TriggerKind
from llm.attention.urgency import thought_pressure
from storage.queues.attention_state import Signal


def _as_it_is(pressure: float, now: float) -> float:
    return pressure


_THOUGHTS = (MetricSampler(Metric.THOUGHTS, 60.0, _as_it_is),)


def _nerve() -> MetricSet[ChannelActivity]:
    return MetricSet(CHANNEL)


def _thoughts() -> MetricSet[float]:
    return MetricSet(_THOUGHTS)


@dataclass(slots=True)
class ChannelState:
    """One place. It is `is_busy` while a run of the model is at work for it."""

    channel: ChannelActivity = field(default_factory=ChannelActivity)
    seen: Aggregate = field(default_factory=Aggregate)
    pending_signals: list[Signal] = field(default_factory=list)
    is_busy: bool = False
    _nerve: MetricSet[ChannelActivity] = field(default_factory=_nerve)
    _thoughts: MetricSet[float] = field(default_factory=_thoughts)

    def measure(self, now: datetime, energy: float) -> None:
        """Gather what the neurons report at this time, as alert as `energy` lets them be."""
        seconds = now.timestamp()
        for sense, value in self._nerve.sample(self.channel, seconds, energy):
            self.seen.add(sense, value, seconds)
        pressure = self._pressure(now, energy)
        for sense, value in self._thoughts.sample(pressure, seconds, energy):
            self.seen.add(sense, value, seconds)

    def due(self, kind: TriggerKind, now: datetime) -> list[Signal]:
        """The signals of a kind that count by now."""
        return [s for s in self.pending_signals if s.kind == kind and s.time <= now]

    def idle(self, now: datetime) -> bool:
        """Whether nothing is left that could become a reason."""
        return not self.is_busy and not self.pending_signals and self.channel.idle(now.timestamp())

    def _pressure(self, now: datetime, energy: float) -> float:
        thoughts = [signal.time for signal in self.due(TriggerKind.THOUGHT, now)]
        oldest = (now - min(thoughts)).total_seconds() if thoughts else 0.0
        return thought_pressure(len(thoughts), oldest, energy)
