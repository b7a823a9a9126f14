"""When attention wakes: in which order, how often, for whom, and when not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from llm.agent.tool_executor import RunLimits
from llm.attention.attention import Attention, Trigger, TriggerKind
from llm.attention.message_features import MessageFeatures
from llm.client.settings import AgentSettings
from storage.chat_log.event import Place
from storage.queues.attention_state import Signal

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")
FIVE = timedelta(minutes=5)


class Day:
    """An attention, and the time."""

    def __init__(self) -> None:
        self.attention = Attention()
        self.now = NOON

    def says(self, text: str, who: str = "ada", place: Place = FROGS) -> None:
        line = MessageFeatures.extract(text, who, self.now)
        self.attention.channel(place).on_message(line, "terra")

    def signals(self, kind: TriggerKind, place: Place = FROGS, **values: str) -> Signal:
        signal = Signal(kind, place, self.now, **values)  # type: ignore[arg-type]
        self.attention.channel(place).signals.append(signal)
        return signal

    def passes(self, time: timedelta) -> list[Trigger]:
        """What wakes meanwhile, tick by tick."""
        wakes = []
        for _ in range(round(time.total_seconds())):
            self.now += timedelta(seconds=1)
            wakes += self.attention.tick(self.now)
        return wakes

    def wakes(self) -> list[TriggerKind]:
        """What wakes on the next ticks, each run over at once."""
        found = []
        for _ in range(20):
            self.now += timedelta(seconds=1)
            for trigger in self.attention.tick(self.now):
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


def test_where_tokens_are_short_only_what_somebody_waits_for_wakes() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    for _ in range(600):
        day.now += timedelta(seconds=1)
        assert day.attention.tick(day.now, may_contact=False) == []
    day.signals(TriggerKind.DIRECT, person="ada")
    (trigger,) = day.attention.tick(day.now, may_contact=False)
    assert trigger.kind is TriggerKind.DIRECT


def test_the_most_important_comes_first() -> None:
    for important, other in pairwise([each for each in TriggerKind if each != "proactive_contact"]):
        day = Day()
        day.signals(other)
        day.signals(important)
        assert day.wakes()[0] is important


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
    assert day.attention.ignores(late)
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


def test_where_it_is_muted_only_reactions_count() -> None:
    day = Day()
    day.attention.channel(FROGS).muted = True
    for kind in (TriggerKind.DIRECT, TriggerKind.THOUGHT):
        assert day.attention.ignores(day.signals(kind))
    day.says("how do I mount a cd?")
    assert day.passes(timedelta(minutes=10)) == []
    assert not day.attention.ignores(day.signals(TriggerKind.REACTION))
    assert day.wakes() == [TriggerKind.REACTION]


def test_where_people_talk_among_themselves_it_waits_for_a_quarter_of_an_hour() -> None:
    day = Day()
    day.says("how do I mount a cd?")
    for second in range(330):
        if second % 5 == 0:
            day.says("bob: it is about something else", f"nick{second % 7}")
        assert day.passes(timedelta(seconds=1)) == []
    assert day.passes(timedelta(minutes=14)) == []
    assert [trigger.kind for trigger in day.passes(timedelta(minutes=2))] == [TriggerKind.CONTACT]


def test_a_thought_that_was_put_off_wakes_when_its_time_has_come() -> None:
    day = Day()
    thought = day.signals(TriggerKind.THOUGHT, person="ada")
    (trigger,) = day.passes(timedelta(seconds=1))
    day.attention.finish(trigger, day.now + timedelta(hours=2))
    assert day.passes(timedelta(hours=1, minutes=55)) == []
    (trigger,) = day.passes(timedelta(minutes=10))
    assert (trigger.kind, trigger.signals) == (TriggerKind.THOUGHT, (thought,))


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (TriggerKind.DIRECT, 4),
        (TriggerKind.THOUGHT, 2),
        (TriggerKind.CONTACT, 8),
    ],
)
def test_a_run_has_as_many_tools_as_its_trigger_is_worth(kind: TriggerKind, calls: int) -> None:
    assert (
        RunLimits.from_settings(AgentSettings(), Trigger(kind, FROGS, NOON).profile).calls == calls
    )


def is_open(*lines: tuple[str, str]) -> bool:
    """Whether ada's question, and what follows within half a minute, leaves a question open."""
    day = Day()
    for who, text in lines:
        day.says(text, who)
        day.now += timedelta(seconds=30)
    return [trigger.kind for trigger in day.passes(timedelta(minutes=6))] != []


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("bob", "ada: mount /cdrom"),
        ("bob", "try mount, Ada"),
        ("bob", "mount /cdrom"),  # there is no other question that it could answer
        ("ada", "nvm, found it"),
        ("ada", "thanks!"),
    ],
)
def test_a_question_is_answered_by(who: str, text: str) -> None:
    assert not is_open(("ada", "how do I mount a cd?"), (who, text))


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("bob", "carl: yes"),
        ("bob", "and how do I open it?"),
        ("ada", "it is a blue one"),
    ],
)
def test_a_question_is_not_answered_by(who: str, text: str) -> None:
    assert is_open(("ada", "how do I mount a cd?"), (who, text))


@pytest.mark.parametrize("addressee", ["Foo{A}", "Foo[A]"])
def test_nicks_are_compared_as_the_network_does(addressee: str) -> None:
    folded = str.maketrans("[]\\~", "{}|^")
    channel = Attention().channel(FROGS)
    for who, text in (("foo[a]", "how do I mount a cd?"), ("bob", f"{addressee}: mount /cdrom")):
        line = MessageFeatures.extract(
            text, who, NOON, fold=lambda nick: nick.lower().translate(folded)
        )
        channel.on_message(line, "terra|")
        if who == "foo[a]":
            assert list(channel.questions) == ["foo{a}"]
    assert not channel.questions


@pytest.mark.parametrize(
    "text", ["bob: are you there?", "see http://x.example/?page", "terra, how are you?", "so what"]
)
def test_it_is_no_question_to_all(text: str) -> None:
    assert not is_open(("ada", text))
