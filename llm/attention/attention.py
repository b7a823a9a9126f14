"""The rule for speaking unasked: which triggers count, in which order, and how long to pause.

A pure state machine: it is fed with lines and signals and polled once a second for triggers. It
never waits, stores anything or calls a model; all times are passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from llm.agent.tool_executor import Profile
from llm.attention.message_features import MessageFeatures
from llm.messages.message import Status
from storage.chat_log.event import Place
from storage.queues.attention_state import AttentionState, Signal

COOLDOWN = timedelta(minutes=30)
"""The minimum time between two unasked runs on one channel."""

ANSWER_DELAY = timedelta(minutes=5)
"""The time after which the bot may answer a question that nobody has answered."""

QUESTION_LIFETIME = timedelta(minutes=30)
"""The age at which an unanswered question is dropped."""

LIVELY_LINES, LIVELY_WITHIN = 10, timedelta(minutes=1)
"""So many lines in so short a time mean a lively conversation that needs no contribution."""

RETRY_DELAY = timedelta(minutes=15)
"""How long to put off speaking in a lively conversation, or after the model has failed."""

FOLLOW_UP_DELAYS: Mapping[Status, timedelta] = {
    "awaiting_answer": timedelta(minutes=3),
    "idle": timedelta(minutes=30),
    "closed": timedelta(hours=4),
}
"""The time until an unasked follow-up may be considered, by the status of the conversation."""

_MAX_QUESTIONS = 20  # the most open questions of a channel


class TriggerKind(StrEnum):
    """A reason to run the model, in order of precedence."""

    # `next_trigger` tries the members in the order of their definition.
    DIRECT = "direct_message"
    REACTION = "reaction"
    THOUGHT = "thought"
    CONTACT = "proactive_contact"


@dataclass(frozen=True, slots=True)
class Trigger:
    """A reason to run the model for a place, with the signals that the run handles.

    `person` is the folded nick that it is about, `event_id` the log id of their line, 0 if it is
    not about a line.
    """

    kind: TriggerKind
    place: Place
    time: datetime
    signals: tuple[Signal, ...] = ()
    person: str = ""
    event_id: int = 0

    @property
    def profile(self) -> Profile:
        """The profile that determines the limits of the run."""
        if self.kind is TriggerKind.THOUGHT:
            return "thought"
        return "proactive" if self.kind is TriggerKind.CONTACT else "event"


@dataclass(slots=True)
class WatchedChannel:
    """The state of one channel: its open questions by person, the times of its latest lines, and
    its pending signals.

    `contacted` is the time of the last unasked run, except for reactions; `deferred` holds until
    when each kind of trigger is put off. The channel is `busy` while the model runs for it.
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
        """Update the state with a line; `nick` is the bot's folded nick."""
        self.lines.append(line.time)
        while self.lines[0] < line.time - LIVELY_WITHIN:
            self.lines.popleft()
        # A line answers the questions of the people it names; if it names and addresses nobody and
        # asks nothing, the only open question of another person; and the speaker's own if it says
        # that the matter is settled.
        others = [person for person in self.questions if person != line.person]
        answered = [person for person in others if person in line.words]
        if not answered and not line.addressed and not line.asks and len(others) == 1:
            answered = others
        for person in [*answered, line.person] if line.settled else answered:
            self.questions.pop(person, None)
        if line.asks and nick not in line.words and len(self.questions) < _MAX_QUESTIONS:
            self.questions.setdefault(line.person, line.time)  # keep the time of the oldest

    def is_cooling(self, now: datetime) -> bool:
        """Return whether the pause after the last unasked run is still on."""
        return self.contacted is not None and now - self.contacted < COOLDOWN

    def next_trigger(self, now: datetime, *, may_contact: bool) -> Trigger | None:
        """Return the most important trigger that is due, None if there is none.

        Expired questions and deferrals are dropped. Without `may_contact` unanswered questions are
        no trigger.
        """
        self.deferred = {kind: until for kind, until in self.deferred.items() if until > now}
        self.questions = {
            person: asked
            for person, asked in self.questions.items()
            if now - asked < QUESTION_LIFETIME
        }
        for kind in TriggerKind:
            # Somebody who answers the bot's own question expects a reaction, so neither the mute
            # nor the pause applies.
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
        """Return a trigger from the due signals of one person, if any; those of other people are
        left for a later run."""
        due = [signal for signal in self.signals if signal.kind == kind and signal.time <= now]
        if not due:
            return None
        person = due[0].person
        own = tuple(signal for signal in due if signal.person == person)
        return Trigger(kind, self.place, now, own, person, own[-1].event_id)

    def _unanswered(self, now: datetime) -> Trigger | None:
        """Return a trigger if the oldest question has waited long enough. In a lively conversation
        it is put off instead."""
        if not self.questions:
            return None
        person, asked = min(self.questions.items(), key=lambda item: item[1])
        if now - asked <= ANSWER_DELAY:
            return None
        if sum(time > now - LIVELY_WITHIN for time in self.lines) >= LIVELY_LINES:
            self.deferred[TriggerKind.CONTACT] = now + RETRY_DELAY
            return None
        return Trigger(TriggerKind.CONTACT, self.place, now, person=person)


class Attention:
    """The state of all channels on which a tendril may speak unasked."""

    def __init__(self, state: AttentionState | None = None) -> None:
        self._channels: dict[Place, WatchedChannel] = {}
        known = set(TriggerKind)  # kinds stored by another version are ignored
        for place, time in (state.contacted if state else {}).items():
            self.channel(place).contacted = time
        for snooze in state.put_off if state else ():
            if snooze.until is None:  # muted until lifted
                self.channel(snooze.place).muted = True
            elif snooze.kind in known:
                self.channel(snooze.place).deferred[TriggerKind(snooze.kind)] = snooze.until
        for signal in state.signals if state else ():
            if signal.kind in known:
                self.channel(signal.place).signals.append(signal)

    def __bool__(self) -> bool:
        """Return whether anything could become a trigger, so that ticks are needed."""
        channels = self._channels.values()
        return any(channel.busy or channel.signals or channel.questions for channel in channels)

    @property
    def pending_signals(self) -> list[Signal]:
        """The signals that no run has handled yet."""
        return [signal for channel in self._channels.values() for signal in channel.signals]

    @property
    def running_count(self) -> int:
        """The number of channels for which the model is running."""
        return sum(channel.busy for channel in self._channels.values())

    def channel(self, place: Place) -> WatchedChannel:
        """Return the state of a channel, created on first use."""
        return self._channels.setdefault(place, WatchedChannel(place))

    def ignores(self, signal: Signal) -> bool:
        """Return whether to discard a signal: a passing mention during the pause after an unasked
        run, or anything but a reaction where the bot is muted."""
        channel = self.channel(signal.place)
        if signal.kind == TriggerKind.DIRECT and channel.is_cooling(signal.time):
            return True
        return channel.muted and signal.kind != TriggerKind.REACTION

    def drop(self, signals: Iterable[Signal]) -> None:
        """Remove signals that have been handled or no longer matter."""
        gone = set(signals)
        for place in {signal.place for signal in gone}:
            channel = self.channel(place)
            channel.signals = [signal for signal in channel.signals if signal not in gone]

    def tick(self, now: datetime, *, may_contact: bool = True) -> list[Trigger]:
        """Return the triggers that are due, at most one per idle channel, which is then busy until
        `finish`.

        Without `may_contact` unanswered questions are no trigger.
        """
        triggers = []
        for channel in self._channels.values():
            trigger = None if channel.busy else channel.next_trigger(now, may_contact=may_contact)
            if trigger:
                channel.busy = True
                triggers.append(trigger)
                # The pause begins with the run, so that signals during it are ignored already.
                if trigger.kind is not TriggerKind.REACTION:
                    channel.contacted = now
        return triggers

    def settled_by(self, trigger: Trigger) -> list[Signal]:
        """Return the signals that a run settles: its own and, if it is about a passing mention, all
        other mentions on the channel, which would now fall into the pause."""
        waiting = self.channel(trigger.place).signals if trigger.kind is TriggerKind.DIRECT else []
        mentions = [signal for signal in waiting if signal.kind == TriggerKind.DIRECT]
        return list(dict.fromkeys([*trigger.signals, *mentions]))

    def finish(self, trigger: Trigger, deferred_until: datetime | None = None) -> None:
        """End a run: its trigger is settled, or put off until `deferred_until`."""
        channel = self.channel(trigger.place)
        channel.busy = False
        if deferred_until:
            channel.deferred[trigger.kind] = deferred_until
            return
        self.drop(self.settled_by(trigger))
        if trigger.kind is TriggerKind.CONTACT:
            channel.questions = {
                person: asked for person, asked in channel.questions.items() if asked > trigger.time
            }
