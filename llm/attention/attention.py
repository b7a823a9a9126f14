"""The middle layer: hears lines, takes signals, and decides on each tick what to wake for.

Nothing here waits or calls a model; times come from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from llm.attention.acknowledgements import Acknowledgement, Acknowledgements, AcknowledgementState
from llm.attention.channel_state import ChannelState
from llm.attention.message_features import MessageFeatures
from llm.attention.metric_sampling import MetricSampler, MetricSet
from llm.attention.token_budget import WEARY, TokenBudget
from llm.attention.trigger import Trigger, find_trigger
from llm.attention.trigger_kinds import ALWAYS, ASKED, MEASURED, Metric, TriggerKind
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal

COOLDOWN = timedelta(minutes=30)
"""The pause between two runs on one channel for which nobody has asked."""

NO_ROOM, LATER = 0.25, timedelta(minutes=15)
"""The availability of a channel below which contact is put off, and for how long."""


def _level(energy: TokenBudget, now: float) -> float:
    return energy.level


_ENERGY = (MetricSampler(Metric.ENERGY, 60.0, _level),)


class Attention:
    """All places of one tendril. `contacted` is when it last ran unasked on each."""

    def __init__(
        self, energy: TokenBudget, contacted: Mapping[Place, datetime] | None = None
    ) -> None:
        self.energy = energy
        self.acknowledged = Acknowledgements()
        self._contacted = dict(contacted or {})
        self._rooms: dict[Place, ChannelState] = {}
        self._nerve = MetricSet(_ENERGY)

    def __bool__(self) -> bool:
        """Whether there is anything that could become a reason."""
        return bool(self._rooms)

    @property
    def pending_signals(self) -> list[Signal]:
        """The signals that are not dealt with."""
        return [signal for state in self._rooms.values() for signal in state.pending_signals]

    @property
    def running_count(self) -> int:
        """For how many places something runs."""
        return sum(state.is_busy for state in self._rooms.values())

    def on_message(self, place: Place, line: MessageFeatures, nick: str) -> None:
        """Somebody has said something; `nick` is our folded nick there."""
        self._room(place).channel.on_message(line, nick)
        self.acknowledged.on_message(place)

    def add_signal(self, signal: Signal) -> None:
        """Something has happened. It waits until a run has dealt with it."""
        self._room(signal.place).pending_signals.append(signal)

    def pauses(self, signal: Signal) -> bool:
        """Return whether a signal is of no use, as the bot has just spoken there unasked."""
        last = self._contacted.get(signal.place)
        in_pause = last is not None and signal.time - last < COOLDOWN
        return signal.kind == TriggerKind.DIRECT and in_pause

    def settled_by(self, trigger: Trigger) -> list[Signal]:
        """Return the signals that a run has dealt with: its own, and when it was for a passing
        mention all others that wait there, as the pause has begun."""
        waiting = (
            self._room(trigger.place).pending_signals if trigger.kind is TriggerKind.DIRECT else []
        )
        mentions = [signal for signal in waiting if signal.kind == TriggerKind.DIRECT]
        return list(dict.fromkeys([*trigger.signals, *mentions]))

    def drop(self, signals: Iterable[Signal]) -> None:
        """Signals are of no interest any more."""
        gone = set(signals)
        for place in {signal.place for signal in gone} & self._rooms.keys():
            state = self._rooms[place]
            state.pending_signals = [
                signal for signal in state.pending_signals if signal not in gone
            ]

    def tick(self, now: datetime, passed: float) -> list[Trigger]:
        """Measure everything anew, `passed` seconds after the last time; at most one reason for
        each place where nothing runs yet. A place that is returned is busy until `finish`."""
        self.energy.recover(passed)
        wakes = []
        for place, state in list(self._rooms.items()):
            state.measure(now, self.energy.level)
            trigger = None if state.is_busy else self._reason(place, state, now)
            if trigger:
                state.is_busy = True
                wakes.append(trigger)
                if trigger.kind not in ASKED:
                    self._contacted[place] = now
            elif state.idle(now):
                del self._rooms[place]
        return wakes

    def energy_changed(self, now: datetime) -> bool:
        """Whether energy has changed, since this last was true, so much that it is worth noting."""
        return bool(self._nerve.sample(self.energy, now.timestamp(), self.energy.level))

    def finish(self, trigger: Trigger, put_off: Acknowledgement | None = None) -> None:
        """A run is over: what it was for is dealt with, or `put_off`."""
        state = self._room(trigger.place)
        state.is_busy = False
        if put_off:
            self.acknowledged.put(trigger.kind, trigger.place, put_off)
        else:
            self._acknowledge(trigger, state)

    def _acknowledge(self, trigger: Trigger, state: ChannelState) -> None:
        self.drop(self.settled_by(trigger))
        if trigger.kind in MEASURED:
            state.channel.mark_considered(trigger.time.timestamp())
            handled = Acknowledgement(AcknowledgementState.HANDLED, trigger.value)
            self.acknowledged.put(trigger.kind, trigger.place, handled)

    def _room(self, place: Place) -> ChannelState:
        if place not in self._rooms:
            self._rooms[place] = ChannelState()
        return self._rooms[place]

    def _reason(self, place: Place, state: ChannelState, now: datetime) -> Trigger | None:
        """The most important thing to wake for, if there is one."""
        last = self._contacted.get(place)
        cool = last is None or now - last >= COOLDOWN
        for kind in TriggerKind:
            if kind not in ALWAYS and self.energy.level < WEARY:
                return None
            trigger = (
                find_trigger(kind, place, state, self.energy, now)
                if cool or kind in ASKED
                else None
            )
            if trigger and self._is_allowed(trigger, state):
                return trigger
        return None

    def _is_allowed(self, trigger: Trigger, state: ChannelState) -> bool:
        """Whether nothing speaks against it: it was dealt with, or there is no room for a word."""
        if self.acknowledged.blocks(trigger.kind, trigger.place, trigger.value, trigger.time):
            return False
        if (
            trigger.kind is TriggerKind.CONTACT
            and state.channel.availability(trigger.time.timestamp()) < NO_ROOM
        ):
            later = Acknowledgement(
                AcknowledgementState.DEFERRED, trigger.value, trigger.time + LATER
            )
            self.acknowledged.put(trigger.kind, trigger.place, later)
            return False
        return True
