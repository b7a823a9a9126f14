"""What attention knows of one place: its lines, what was measured, the signals that wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from llm.attention.aggregate import Aggregate
from llm.attention.channel import Channel
from llm.attention.kind import Kind, Sense
from llm.attention.neurons import CHANNEL, Nerve, Neuron
from llm.attention.pressure import thought_pressure
from storage.queues.attention_state import Signal


def _as_it_is(pressure: float, now: float) -> float:
    return pressure


_THOUGHTS = (Neuron(Sense.THOUGHTS, 60.0, _as_it_is),)


def _nerve() -> Nerve[Channel]:
    return Nerve(CHANNEL)


def _thoughts() -> Nerve[float]:
    return Nerve(_THOUGHTS)


@dataclass(slots=True)
class Room:
    """One place. It is `busy` while a run of the model is at work for it."""

    channel: Channel = field(default_factory=Channel)
    seen: Aggregate = field(default_factory=Aggregate)
    waiting: list[Signal] = field(default_factory=list)
    busy: bool = False
    _nerve: Nerve[Channel] = field(default_factory=_nerve)
    _thoughts: Nerve[float] = field(default_factory=_thoughts)

    def measure(self, now: datetime, energy: float) -> None:
        """Gather what the neurons report at this time, as alert as `energy` lets them be."""
        seconds = now.timestamp()
        for sense, value in self._nerve.fire(self.channel, seconds, energy):
            self.seen.add(sense, value, seconds)
        pressure = self._pressure(now, energy)
        for sense, value in self._thoughts.fire(pressure, seconds, energy):
            self.seen.add(sense, value, seconds)

    def due(self, kind: Kind, now: datetime) -> list[Signal]:
        """The signals of a kind that count by now."""
        return [s for s in self.waiting if s.kind == kind and s.time <= now]

    def idle(self, now: datetime) -> bool:
        """Whether nothing is left that could become a reason."""
        return not self.busy and not self.waiting and self.channel.idle(now.timestamp())

    def _pressure(self, now: datetime, energy: float) -> float:
        thoughts = [signal.time for signal in self.due(Kind.THOUGHT, now)]
        oldest = (now - min(thoughts)).total_seconds() if thoughts else 0.0
        return thought_pressure(len(thoughts), oldest, energy)
