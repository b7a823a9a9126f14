"""When attention wakes: in which order, how often, for whom, and when not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from llm.agent.limits import RunLimits
from llm.attention.acknowledgements import Acknowledgement, AcknowledgementState
from llm.attention.attention import Attention
from llm.attention.message_features import MessageFeatures
from llm.attention.token_budget import TokenBudget
from llm.attention.trigger import Trigger
from llm.attention.trigger_kinds import TriggerKind
from llm.client.settings import AgentSettings
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")
FIVE = timedelta(minutes=5)


class Day:
    """An attention, and the time."""

    def __init__(self, energy: float = 1.0) -> None:
        self.attention = Attention(TokenBudget(100_000, 0.0, energy))
        self.now = NOON

    def says(self, text: str, who: str = "ada", place: Place = FROGS) -> None:
        line = MessageFeatures.extract(text, who, self.now.timestamp())
        self.attention.on_message(place, line, "terra")

    def signals(self, kind: TriggerKind, place: Place = FROGS, **values: str) -> Signal:
        signal = Signal(kind, place, self.now, **values)  # type: ignore[arg-type]
        self.attention.add_signal(signal)
        return signal

    def passes(self, time: timedelta) -> list[Trigger]:
        """What wakes meanwhile, tick by tick."""
        wakes = []
        for _ in range(round(time.total_seconds())):
            self.now += timedelta(seconds=1)
            wakes += self.attention.tick(self.now, 1.0)
        return wakes

    def wakes(self) -> list[TriggerKind]:
        """What wakes on the next ticks, each run over at once."""
        found = []
        for _ in range(20):
            self.now += timedelta(seconds=1)
            for trigger in self.attention.tick(self.now, 1.0):
                found.append(trigger.kind)
                self.attention.finish(trigger)
        return found


def test_nothing_wakes_while_nothing_happens() -> None:
    day = Day()
    day.says("hello")
    assert day.passes(timedelta(hours=2)) == []
    assert not day.attention  # and nothing is left to look at


def test_a_question_without_an_answer_wakes_after_five_minutes() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    assert day.passes(timedelta(minutes=4, seconds=50)) == []
    (trigger,) = day.passes(timedelta(seconds=40))
    assert (trigger.kind, trigger.place, trigger.person) == (TriggerKind.CONTACT, FROGS, "ada")


def test_the_tired_wait_longer() -> None:
    day = Day(energy=0.5)
    day.says("how do I mount a cd?")
    assert day.passes(timedelta(minutes=7)) == []
    assert [trigger.kind for trigger in day.passes(timedelta(minutes=2))] == [TriggerKind.CONTACT]


def test_below_three_tenths_of_energy_only_what_somebody_waits_for_wakes() -> None:
    day = Day(energy=0.29)
    day.says("how do I mount a cd?")
    day.signals(TriggerKind.PLUGIN)
    day.signals(TriggerKind.ERROR)
    assert day.passes(timedelta(minutes=20)) == []
    day.signals(TriggerKind.DIRECT, person="ada")
    assert day.wakes() == [TriggerKind.DIRECT]


def test_the_most_important_comes_first() -> None:
    order = [
        TriggerKind.DIRECT,
        TriggerKind.REACTION,
        TriggerKind.RESULT,
        TriggerKind.THOUGHT,
        TriggerKind.ERROR,
        TriggerKind.PLUGIN,
    ]
    for important, other in pairwise(order):
        day = Day()
        day.signals(other)
        day.signals(important)
        assert day.wakes()[0] is important
    assert list(TriggerKind) == [
        *order[:5],
        TriggerKind.SILENCE,
        TriggerKind.PRESSURE,
        TriggerKind.PLUGIN,
        TriggerKind.CONTACT,
    ]


def test_signals_that_come_while_the_model_is_busy_wait() -> None:
    day = Day()
    day.signals(TriggerKind.REACTION, person="ada")
    (first,) = day.passes(timedelta(seconds=1))
    late = day.signals(TriggerKind.REACTION, person="bob")
    later = day.signals(TriggerKind.REACTION, person="carl")
    assert day.passes(FIVE) == []
    day.attention.finish(first)
    assert day.attention.pending_signals == [late, later]
    (second,) = day.passes(timedelta(seconds=1))
    day.attention.finish(second)
    (third,) = day.passes(timedelta(seconds=1))
    assert [second.signals, third.signals] == [(late,), (later,)]
    day.attention.finish(third)
    assert day.attention.pending_signals == []


def test_one_run_at_a_time_on_a_channel_and_others_beside_it() -> None:
    day = Day()
    day.signals(TriggerKind.DIRECT)
    day.signals(TriggerKind.DIRECT, place=TOADS)
    assert {trigger.place for trigger in day.passes(timedelta(seconds=1))} == {FROGS, TOADS}
    day.signals(TriggerKind.DIRECT)
    assert day.passes(FIVE) == []


def test_half_an_hour_lies_between_two_runs_unasked() -> None:
    day = Day()
    day.signals(TriggerKind.THOUGHT)
    assert day.wakes() == [TriggerKind.THOUGHT]
    day.signals(TriggerKind.THOUGHT)
    assert day.passes(timedelta(minutes=29)) == []
    day.signals(TriggerKind.REACTION)  # but who answers us is heard
    assert day.wakes() == [TriggerKind.REACTION]
    day.passes(timedelta(seconds=20))
    assert day.wakes() == [TriggerKind.THOUGHT]


def test_passing_mentions_get_one_word_and_count_for_the_pause() -> None:
    day = Day()
    day.signals(TriggerKind.DIRECT, person="ada")
    (first,) = day.passes(timedelta(seconds=1))
    late = day.signals(TriggerKind.DIRECT, person="bob")
    assert day.attention.pauses(late)
    day.attention.finish(first)
    assert day.attention.pending_signals == []


def test_a_channel_has_its_own_pause() -> None:
    day = Day()
    day.signals(TriggerKind.THOUGHT)
    assert day.wakes() == [TriggerKind.THOUGHT]
    day.signals(TriggerKind.THOUGHT, place=TOADS)
    assert day.wakes() == [TriggerKind.THOUGHT]


def test_a_question_that_we_have_looked_at_does_not_wake_us_again() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    (trigger,) = day.passes(timedelta(minutes=6))
    day.attention.finish(trigger)
    day.says("hm")
    assert day.passes(timedelta(hours=1)) == []


def test_one_persons_line_does_not_bring_up_what_was_handled_on_another_channel() -> None:
    day = Day()
    for place in (FROGS, TOADS):
        day.attention.acknowledged.put(
            TriggerKind.CONTACT, place, Acknowledgement(AcknowledgementState.HANDLED)
        )
    day.says("how do I mount a cd?")
    assert [trigger.place for trigger in day.passes(timedelta(minutes=6))] == [FROGS]


def test_where_all_speak_at_once_contact_is_put_off_for_a_quarter_of_an_hour() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    for second in range(330):
        if second % 5 == 0:
            day.says("bob: it is about something else", f"nick{second % 7}")
        assert day.passes(timedelta(seconds=1)) == []
    assert day.passes(timedelta(minutes=3)) == []
    (trigger,) = day.passes(timedelta(minutes=10))
    assert trigger.value >= 0.35 + 0.25  # so urgent by then that it did not wait its time


def test_a_thought_that_was_put_off_wakes_when_its_time_has_come() -> None:
    day = Day()
    thought = day.signals(TriggerKind.THOUGHT, person="ada")
    (trigger,) = day.passes(timedelta(seconds=1))
    later = Acknowledgement(
        AcknowledgementState.DEFERRED, trigger.value, day.now + timedelta(hours=2)
    )
    day.attention.finish(trigger, later)
    assert day.passes(timedelta(hours=1, minutes=55)) == []
    (trigger,) = day.passes(timedelta(minutes=10))
    assert (trigger.kind, trigger.signals) == (TriggerKind.THOUGHT, (thought,))


def test_many_thoughts_that_were_put_off_press() -> None:
    day = Day()
    day.signals(TriggerKind.THOUGHT, person="ada")
    (trigger,) = day.passes(timedelta(seconds=1))
    day.attention.finish(
        trigger, Acknowledgement(AcknowledgementState.DEFERRED, 1.0, day.now + timedelta(hours=20))
    )
    for number in range(4):
        day.signals(TriggerKind.THOUGHT, person=f"nick{number}")
    (trigger,) = day.passes(timedelta(hours=2))
    assert trigger.kind is TriggerKind.PRESSURE
    assert len(trigger.signals) == 5


def test_a_sudden_silence_wakes_and_only_once() -> None:
    day = Day()
    for second in range(240):
        if second % 6 == 0:
            day.says("and so on", f"nick{second % 5}")
        assert day.passes(timedelta(seconds=1)) == []
    (trigger,) = day.passes(timedelta(minutes=8))
    assert trigger.kind is TriggerKind.SILENCE
    day.attention.finish(trigger)
    assert day.passes(timedelta(hours=2)) == []


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (TriggerKind.DIRECT, 4),
        (TriggerKind.THOUGHT, 2),
        (TriggerKind.PRESSURE, 2),
        (TriggerKind.CONTACT, 8),
    ],
)
def test_a_run_has_as_many_tools_as_its_trigger_is_worth(kind: TriggerKind, calls: int) -> None:
    assert (
        RunLimits.from_settings(AgentSettings(), Trigger(kind, FROGS, 1.0, NOON).profile).calls
        == calls
    )
