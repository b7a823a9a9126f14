"""The rule for speaking unasked: which reasons count, in which order, and how long to pause.

It takes in lines and signals and is asked once a second for reasons to run the model. Nothing here
waits, stores or calls a model; times come from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from llm.agent.tool_executor import Profile
from llm.attention.message_features import MessageFeatures
from storage.chat_log.event import Place
from storage.queues.attention_state import AttentionState, Signal

COOLDOWN = timedelta(minutes=30)
"""The pause between two runs on one channel that nobody has asked for."""

PATIENCE = timedelta(minutes=5)
"""The time without an answer after which the bot may answer a question."""

FORGOTTEN = timedelta(minutes=30)
"""The time after which an unanswered question is of no interest any more."""

CROWD, CROWD_WITHIN = 10, timedelta(minutes=1)
"""Lines in so short a time mean that people talk among themselves and want no further voice."""

LATER = timedelta(minutes=15)
"""The delay where people talk among themselves, or the model has failed."""

_QUESTIONS = 20  # open ones of a channel, at most


class TriggerKind(StrEnum):
    """A reason to run the model. Of several the first counts."""

    DIRECT = "direct_message"
    REACTION = "reaction"
    THOUGHT = "thought"
    CONTACT = "proactive_contact"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A reason to run the model for a place, with the signals that the run deals with.

    `person` is the folded nick that it is about, `event_id` the id of their line in the log, 0 when
    it is not about a line.
    """

    kind: TriggerKind
    place: Place
    time: datetime
    signals: tuple[Signal, ...] = ()
    person: str = ""
    event_id: int = 0

    @property
    def profile(self) -> Profile:
        """The limits of the run."""
        if self.kind is TriggerKind.THOUGHT:
            return "thought"
        return "proactive" if self.kind is TriggerKind.CONTACT else "event"


@dataclass(slots=True)
class WatchedChannel:
    """One channel: its open questions by person, its last lines, the signals that wait.

    `contacted` is when the model last ran for it unasked, `deferred` until when a reason is put
    off. It is `busy` while the model runs for it.
    """

    place: Place
    questions: dict[str, datetime] = field(default_factory=dict)
    lines: deque[datetime] = field(default_factory=deque)
    signals: list[Signal] = field(default_factory=list)
    deferred: dict[TriggerKind, datetime] = field(default_factory=dict)
    contacted: datetime | None = None
    muted: bool = False
    busy: bool = False

    def on_message(self, line: MessageFeatures, nick: str) -> None:
        """Take in a line; `nick` is the bot's folded nick."""
        self.lines.append(line.time)
        while self.lines[0] < line.time - CROWD_WITHIN:
            self.lines.popleft()
        self._close_answered(line)
        if line.asks and nick not in line.words and len(self.questions) < _QUESTIONS:
            self.questions.setdefault(line.person, line.time)  # their first one waits longest

    def is_cooling(self, now: datetime) -> bool:
        """Return whether the pause since the last unasked run is not over."""
        return self.contacted is not None and now - self.contacted < COOLDOWN

    def next_trigger(self, now: datetime, *, may_contact: bool) -> Trigger | None:
        """Return the most important reason to run the model now, if there is one."""
        self.deferred = {kind: until for kind, until in self.deferred.items() if until > now}
        self.questions = {
            person: asked for person, asked in self.questions.items() if now - asked < FORGOTTEN
        }
        for kind in TriggerKind:
            # Whoever answers a question of ours is not left waiting for the pause to end.
            held = kind is not TriggerKind.REACTION and (self.muted or self.is_cooling(now))
            if held or kind in self.deferred:
                continue
            if kind is not TriggerKind.CONTACT:
                trigger = self._due(kind, now)
            else:
                trigger = self._unanswered(now) if may_contact else None
            if trigger:
                return trigger
        return None

    def _due(self, kind: TriggerKind, now: datetime) -> Trigger | None:
        """Return a reason from the signals of one person; those of others are for another run."""
        due = [signal for signal in self.signals if signal.kind == kind and signal.time <= now]
        if not due:
            return None
        person = due[0].person
        own = tuple(signal for signal in due if signal.person == person)
        return Trigger(kind, self.place, now, own, person, own[-1].event_id)

    def _unanswered(self, now: datetime) -> Trigger | None:
        """Return a reason when a question has waited long enough, unless people talk."""
        if not self.questions:
            return None
        person, asked = min(self.questions.items(), key=lambda item: item[1])
        if now - asked <= PATIENCE:
            return None
        if sum(time > now - CROWD_WITHIN for time in self.lines) >= CROWD:
            self.deferred[TriggerKind.CONTACT] = now + LATER
            return None
        return Trigger(TriggerKind.CONTACT, self.place, now, person=person)

    def _close_answered(self, line: MessageFeatures) -> None:
        """Drop the questions that a line answers: of those whom it names; the only open one, when
        it names nobody; the speaker's own, when they have what they wanted."""
        others = [person for person in self.questions if person != line.person]
        answered = [person for person in others if person in line.words]
        if not answered and not line.addressed and not line.asks and len(others) == 1:
            answered = others
        if line.settled:
            answered.append(line.person)
        for person in answered:
            self.questions.pop(person, None)


class Attention:
    """All channels of a tendril on which it may speak unasked."""

    def __init__(self, state: AttentionState | None = None) -> None:
        self._channels: dict[Place, WatchedChannel] = {}
        known = set(TriggerKind)
        for place, time in (state.contacted if state else {}).items():
            self.channel(place).contacted = time
        for snooze in state.put_off if state else ():
            if snooze.until is None:
                self.channel(snooze.place).muted = True
            elif snooze.kind in known:
                self.channel(snooze.place).deferred[TriggerKind(snooze.kind)] = snooze.until
        for signal in state.signals if state else ():
            if signal.kind in known:
                self.channel(signal.place).signals.append(signal)

    def __bool__(self) -> bool:
        """Return whether there is anything that could become a reason."""
        channels = self._channels.values()
        return any(channel.busy or channel.signals or channel.questions for channel in channels)

    @property
    def pending_signals(self) -> list[Signal]:
        """The signals that are not dealt with."""
        return [signal for channel in self._channels.values() for signal in channel.signals]

    @property
    def running_count(self) -> int:
        """The number of channels for which the model runs."""
        return sum(channel.busy for channel in self._channels.values())

    def channel(self, place: Place) -> WatchedChannel:
        """Return a channel, which is new when nothing is known of it."""
        return self._channels.setdefault(place, WatchedChannel(place))

    def ignores(self, signal: Signal) -> bool:
        """Return whether a signal is of no use: a passing mention where the bot has just spoken, or
        anything but a reaction where it is muted."""
        channel = self.channel(signal.place)
        if signal.kind == TriggerKind.DIRECT and channel.is_cooling(signal.time):
            return True
        return channel.muted and signal.kind != TriggerKind.REACTION

    def drop(self, signals: Iterable[Signal]) -> None:
        """Forget signals that are dealt with or of no interest any more."""
        gone = set(signals)
        for place in {signal.place for signal in gone}:
            channel = self.channel(place)
            channel.signals = [signal for signal in channel.signals if signal not in gone]

    def tick(self, now: datetime, *, may_contact: bool = True) -> list[Trigger]:
        """Return at most one reason for each channel where nothing runs; it is busy until `finish`.

        Without `may_contact` unanswered questions are no reason.
        """
        triggers = []
        for channel in self._channels.values():
            trigger = None if channel.busy else channel.next_trigger(now, may_contact=may_contact)
            if trigger:
                channel.busy = True
                triggers.append(trigger)
                if trigger.kind is not TriggerKind.REACTION:
                    channel.contacted = now
        return triggers

    def settled_by(self, trigger: Trigger) -> list[Signal]:
        """Return the signals that a run deals with: its own, and when it is for a passing mention
        all others that wait there, as the pause has begun."""
        waiting = self.channel(trigger.place).signals if trigger.kind is TriggerKind.DIRECT else []
        mentions = [signal for signal in waiting if signal.kind == TriggerKind.DIRECT]
        return list(dict.fromkeys([*trigger.signals, *mentions]))

    def finish(self, trigger: Trigger, put_off: datetime | None = None) -> None:
        """End a run: its reason is dealt with, or put off until a time."""
        channel = self.channel(trigger.place)
        channel.busy = False
        if put_off:
            channel.deferred[trigger.kind] = put_off
            return
        self.drop(self.settled_by(trigger))
        if trigger.kind is TriggerKind.CONTACT:
            channel.questions = {
                person: asked for person, asked in channel.questions.items() if asked > trigger.time
            }
