"""The middle layer: hears lines, takes signals, and decides on each tick what to wake for.

Nothing here waits or calls a model; times come from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from llm.attention.acknowledgements import Acknowledgement, Acknowledgements, State
from llm.attention.energy import WEARY, Energy
from llm.attention.kind import ALWAYS, ASKED, MEASURED, Kind, Sense
from llm.attention.line import Line
from llm.attention.neurons import Nerve, Neuron
from llm.attention.room import Room
from llm.attention.wake import Wake, wake_for
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal

COOLDOWN = timedelta(minutes=30)
"""The pause between two runs on one channel for which nobody has asked."""

NO_ROOM, LATER = 0.25, timedelta(minutes=15)
"""The availability of a channel below which contact is put off, and for how long."""


def _level(energy: Energy, now: float) -> float:
    return energy.level


_ENERGY = (Neuron(Sense.ENERGY, 60.0, _level),)


class Attention:
    """All places of one tendril. `contacted` is when it last ran unasked on each."""

    def __init__(self, energy: Energy, contacted: Mapping[Place, datetime] | None = None) -> None:
        self.energy = energy
        self.acknowledged = Acknowledgements()
        self._contacted = dict(contacted or {})
        self._rooms: dict[Place, Room] = {}
        self._nerve = Nerve(_ENERGY)

    def __bool__(self) -> bool:
        """Whether there is anything that could become a reason."""
        return bool(self._rooms)

    @property
    def waiting(self) -> list[Signal]:
        """The signals that are not dealt with."""
        return [signal for room in self._rooms.values() for signal in room.waiting]

    @property
    def busy(self) -> int:
        """For how many places something runs."""
        return sum(room.busy for room in self._rooms.values())

    def hear(self, place: Place, line: Line, nick: str) -> None:
        """Somebody has said something; `nick` is our folded nick there."""
        self._room(place).channel.hear(line, nick)
        self.acknowledged.spoken(place)

    def take(self, signal: Signal) -> None:
        """Something has happened. It waits until a run has dealt with it."""
        self._room(signal.place).waiting.append(signal)

    def pauses(self, signal: Signal) -> bool:
        """Return whether a signal is of no use, as the bot has just spoken there unasked."""
        last = self._contacted.get(signal.place)
        in_pause = last is not None and signal.time - last < COOLDOWN
        return signal.kind == Kind.DIRECT and in_pause

    def settled_by(self, wake: Wake) -> list[Signal]:
        """Return the signals that a run has dealt with: its own, and when it was for a passing
        mention all others that wait there, as the pause has begun."""
        waiting = self._room(wake.place).waiting if wake.kind is Kind.DIRECT else []
        mentions = [signal for signal in waiting if signal.kind == Kind.DIRECT]
        return list(dict.fromkeys([*wake.signals, *mentions]))

    def drop(self, signals: Iterable[Signal]) -> None:
        """Signals are of no interest any more."""
        gone = set(signals)
        for place in {signal.place for signal in gone} & self._rooms.keys():
            room = self._rooms[place]
            room.waiting = [signal for signal in room.waiting if signal not in gone]

    def tick(self, now: datetime, passed: float) -> list[Wake]:
        """Measure everything anew, `passed` seconds after the last time; at most one reason for
        each place where nothing runs yet. A place that is returned is busy until `done`."""
        self.energy.rest(passed)
        wakes = []
        for place, room in list(self._rooms.items()):
            room.measure(now, self.energy.level)
            wake = None if room.busy else self._reason(place, room, now)
            if wake:
                room.busy = True
                wakes.append(wake)
                if wake.kind not in ASKED:
                    self._contacted[place] = now
            elif room.idle(now):
                del self._rooms[place]
        return wakes

    def energy_changed(self, now: datetime) -> bool:
        """Whether energy has changed, since this last was true, so much that it is worth noting."""
        return bool(self._nerve.fire(self.energy, now.timestamp(), self.energy.level))

    def done(self, wake: Wake, put_off: Acknowledgement | None = None) -> None:
        """A run is over: what it was for is dealt with, or `put_off`."""
        room = self._room(wake.place)
        room.busy = False
        if put_off:
            self.acknowledged.put(wake.kind, wake.place, put_off)
        else:
            self._handled(wake, room)

    def _handled(self, wake: Wake, room: Room) -> None:
        self.drop(self.settled_by(wake))
        if wake.kind in MEASURED:
            room.channel.considered(wake.time.timestamp())
            handled = Acknowledgement(State.HANDLED, wake.value)
            self.acknowledged.put(wake.kind, wake.place, handled)

    def _room(self, place: Place) -> Room:
        if place not in self._rooms:
            self._rooms[place] = Room()
        return self._rooms[place]

    def _reason(self, place: Place, room: Room, now: datetime) -> Wake | None:
        """The most important thing to wake for, if there is one."""
        last = self._contacted.get(place)
        cool = last is None or now - last >= COOLDOWN
        for kind in Kind:
            if kind not in ALWAYS and self.energy.level < WEARY:
                return None
            wake = wake_for(kind, place, room, self.energy, now) if cool or kind in ASKED else None
            if wake and self._lets(wake, room):
                return wake
        return None

    def _lets(self, wake: Wake, room: Room) -> bool:
        """Whether nothing speaks against it: it was dealt with, or there is no room for a word."""
        if self.acknowledged.blocks(wake.kind, wake.place, wake.value, wake.time):
            return False
        if wake.kind is Kind.CONTACT and room.channel.availability(wake.time.timestamp()) < NO_ROOM:
            later = Acknowledgement(State.DEFERRED, wake.value, wake.time + LATER)
            self.acknowledged.put(wake.kind, wake.place, later)
            return False
        return True
