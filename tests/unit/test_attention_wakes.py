"""When attention wakes: in which order, how often, for whom, and when not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from llm.agent.limits import Limits
from llm.attention.acknowledgements import Acknowledgement, State
from llm.attention.attention import Attention
from llm.attention.energy import Energy
from llm.attention.kind import Kind
from llm.attention.line import Line
from llm.attention.wake import Wake
from llm.client.settings import AgentSettings
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")
FIVE = timedelta(minutes=5)


class Day:
    """An attention, and the time."""

    def __init__(self, energy: float = 1.0) -> None:
        self.attention = Attention(Energy(100_000, 0.0, energy))
        self.now = NOON

    def says(self, text: str, who: str = "ada", place: Place = FROGS) -> None:
        line = Line.read(text, who, self.now.timestamp())
        self.attention.hear(place, line, "terra")

    def signals(self, kind: Kind, place: Place = FROGS, **values: str) -> Signal:
        signal = Signal(kind, place, self.now, **values)  # type: ignore[arg-type]
        self.attention.take(signal)
        return signal

    def passes(self, time: timedelta) -> list[Wake]:
        """What wakes meanwhile, tick by tick."""
        wakes = []
        for _ in range(round(time.total_seconds())):
            self.now += timedelta(seconds=1)
            wakes += self.attention.tick(self.now, 1.0)
        return wakes

    def wakes(self) -> list[Kind]:
        """What wakes on the next ticks, each run over at once."""
        found = []
        for _ in range(20):
            self.now += timedelta(seconds=1)
            for wake in self.attention.tick(self.now, 1.0):
                found.append(wake.kind)
                self.attention.done(wake)
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
    (wake,) = day.passes(timedelta(seconds=40))
    assert (wake.kind, wake.place, wake.person) == (Kind.CONTACT, FROGS, "ada")


def test_the_tired_wait_longer() -> None:
    day = Day(energy=0.5)
    day.says("how do I mount a cd?")
    assert day.passes(timedelta(minutes=7)) == []
    assert [wake.kind for wake in day.passes(timedelta(minutes=2))] == [Kind.CONTACT]


def test_below_three_tenths_of_energy_only_what_somebody_waits_for_wakes() -> None:
    day = Day(energy=0.29)
    day.says("how do I mount a cd?")
    day.signals(Kind.PLUGIN)
    day.signals(Kind.ERROR)
    assert day.passes(timedelta(minutes=20)) == []
    day.signals(Kind.DIRECT, person="ada")
    assert day.wakes() == [Kind.DIRECT]


def test_the_most_important_comes_first() -> None:
    order = [Kind.DIRECT, Kind.REACTION, Kind.RESULT, Kind.THOUGHT, Kind.ERROR, Kind.PLUGIN]
    for important, other in pairwise(order):
        day = Day()
        day.signals(other)
        day.signals(important)
        assert day.wakes()[0] is important
    assert list(Kind) == [
        *order[:5], Kind.SILENCE, Kind.PRESSURE, Kind.PLUGIN, Kind.CONTACT
    ]  # fmt: skip


def test_signals_that_come_while_the_model_is_busy_wait() -> None:
    day = Day()
    day.signals(Kind.REACTION, person="ada")
    (first,) = day.passes(timedelta(seconds=1))
    late = day.signals(Kind.REACTION, person="bob")
    later = day.signals(Kind.REACTION, person="carl")
    assert day.passes(FIVE) == []
    day.attention.done(first)
    assert day.attention.waiting == [late, later]
    (second,) = day.passes(timedelta(seconds=1))
    day.attention.done(second)
    (third,) = day.passes(timedelta(seconds=1))
    assert [second.signals, third.signals] == [(late,), (later,)]
    day.attention.done(third)
    assert day.attention.waiting == []


def test_one_run_at_a_time_on_a_channel_and_others_beside_it() -> None:
    day = Day()
    day.signals(Kind.DIRECT)
    day.signals(Kind.DIRECT, place=TOADS)
    assert {wake.place for wake in day.passes(timedelta(seconds=1))} == {FROGS, TOADS}
    day.signals(Kind.DIRECT)
    assert day.passes(FIVE) == []


def test_half_an_hour_lies_between_two_runs_unasked() -> None:
    day = Day()
    day.signals(Kind.THOUGHT)
    assert day.wakes() == [Kind.THOUGHT]
    day.signals(Kind.THOUGHT)
    assert day.passes(timedelta(minutes=29)) == []
    day.signals(Kind.REACTION)  # but who answers us is heard
    assert day.wakes() == [Kind.REACTION]
    day.passes(timedelta(seconds=20))
    assert day.wakes() == [Kind.THOUGHT]


def test_passing_mentions_get_one_word_and_count_for_the_pause() -> None:
    day = Day()
    day.signals(Kind.DIRECT, person="ada")
    (first,) = day.passes(timedelta(seconds=1))
    late = day.signals(Kind.DIRECT, person="bob")
    assert day.attention.pauses(late)
    day.attention.done(first)
    assert day.attention.waiting == []


def test_a_channel_has_its_own_pause() -> None:
    day = Day()
    day.signals(Kind.THOUGHT)
    assert day.wakes() == [Kind.THOUGHT]
    day.signals(Kind.THOUGHT, place=TOADS)
    assert day.wakes() == [Kind.THOUGHT]


def test_a_question_that_we_have_looked_at_does_not_wake_us_again() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    (wake,) = day.passes(timedelta(minutes=6))
    day.attention.done(wake)
    day.says("hm")
    assert day.passes(timedelta(hours=1)) == []


def test_one_persons_line_does_not_bring_up_what_was_handled_on_another_channel() -> None:
    day = Day()
    for place in (FROGS, TOADS):
        day.attention.acknowledged.put(Kind.CONTACT, place, Acknowledgement(State.HANDLED))
    day.says("how do I mount a cd?")
    assert [wake.place for wake in day.passes(timedelta(minutes=6))] == [FROGS]


def test_where_all_speak_at_once_contact_is_put_off_for_a_quarter_of_an_hour() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    for second in range(330):
        if second % 5 == 0:
            day.says("bob: it is about something else", f"nick{second % 7}")
        assert day.passes(timedelta(seconds=1)) == []
    assert day.passes(timedelta(minutes=3)) == []
    (wake,) = day.passes(timedelta(minutes=10))
    assert wake.value >= 0.35 + 0.25  # so urgent by then that it did not wait its time


def test_a_thought_that_was_put_off_wakes_when_its_time_has_come() -> None:
    day = Day()
    thought = day.signals(Kind.THOUGHT, person="ada")
    (wake,) = day.passes(timedelta(seconds=1))
    later = Acknowledgement(State.DEFERRED, wake.value, day.now + timedelta(hours=2))
    day.attention.done(wake, later)
    assert day.passes(timedelta(hours=1, minutes=55)) == []
    (wake,) = day.passes(timedelta(minutes=10))
    assert (wake.kind, wake.signals) == (Kind.THOUGHT, (thought,))


def test_many_thoughts_that_were_put_off_press() -> None:
    day = Day()
    day.signals(Kind.THOUGHT, person="ada")
    (wake,) = day.passes(timedelta(seconds=1))
    day.attention.done(wake, Acknowledgement(State.DEFERRED, 1.0, day.now + timedelta(hours=20)))
    for number in range(4):
        day.signals(Kind.THOUGHT, person=f"nick{number}")
    (wake,) = day.passes(timedelta(hours=2))
    assert wake.kind is Kind.PRESSURE
    assert len(wake.signals) == 5


def test_a_sudden_silence_wakes_and_only_once() -> None:
    day = Day()
    for second in range(240):
        if second % 6 == 0:
            day.says("and so on", f"nick{second % 5}")
        assert day.passes(timedelta(seconds=1)) == []
    (wake,) = day.passes(timedelta(minutes=8))
    assert wake.kind is Kind.SILENCE
    day.attention.done(wake)
    assert day.passes(timedelta(hours=2)) == []


@pytest.mark.parametrize(
    ("kind", "calls"),
    [(Kind.DIRECT, 4), (Kind.THOUGHT, 2), (Kind.PRESSURE, 2), (Kind.CONTACT, 8)],
)
def test_a_run_has_as_many_tools_as_its_trigger_is_worth(kind: Kind, calls: int) -> None:
    assert Limits.of(AgentSettings(), Wake(kind, FROGS, 1.0, NOON).profile).calls == calls
