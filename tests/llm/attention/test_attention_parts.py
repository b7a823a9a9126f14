"""The parts of attention: what is noticed, how energy moves, what presses, what was dealt with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.attention.acknowledgements import Acknowledgement, Acknowledgements, AcknowledgementState
from llm.attention.aggregate import Aggregate
from llm.attention.channel_activity import ChannelActivity
from llm.attention.message_features import MessageFeatures
from llm.attention.metric_sampling import CHANNEL, MetricSampler, MetricSet
from llm.attention.threshold import Threshold
from llm.attention.token_budget import LEAST, TokenBudget
from llm.attention.trigger_kinds import Metric, TriggerKind
from llm.attention.urgency import thought_pressure
from storage.chat_log.event import Place

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
START = NOON.timestamp()
FROGS, TOADS = Place("irc", "#frogs"), Place("irc", "#toads")


def said(channel: ChannelActivity, who: str, text: str, second: float) -> None:
    channel.on_message(MessageFeatures.extract(text, who, START + second), "terra")


# What is noticed.


@pytest.mark.parametrize(
    ("value", "emitted", "alertness", "noticed"),
    [
        (0.55, 0.5, 1.0, True),  # a tenth more
        (0.54, 0.5, 1.0, False),
        (0.44, 0.5, 1.0, True),  # less counts like more
        (0.55, 0.5, 0.0, False),  # the tired need 15 %
        (0.576, 0.5, 0.0, True),
        (0.02, 0.0, 1.0, True),  # from nothing, anything
        (0.009, 0.0, 1.0, False),  # but what is less than the least
        (0.039, 0.03, 1.0, False),
    ],
)
def test_a_change_is_noticed_by_its_share_of_what_was_reported(
    value: float, emitted: float, alertness: float, noticed: bool
) -> None:
    assert Threshold().significant(value, emitted, alertness) is noticed


def test_nobody_is_so_tired_as_to_miss_a_change_by_half() -> None:
    assert Threshold(base=0.4, influence=2.0).significant(0.75, 0.5, alertness=0.0)


def test_a_drift_of_a_two_hundredth_per_tick_is_noticed() -> None:
    drifting: MetricSampler[float] = MetricSampler(Metric.ACTIVITY, 3.0, lambda level, now: level)
    nerve = MetricSet((drifting,))
    reported: list[float] = []
    for tick in range(100):
        level = 0.5 + 0.005 * tick
        reported += [value for _, value in nerve.sample(level, START + 4 * tick, 1.0)]
    assert reported[0] == 0.5
    assert reported[1] == pytest.approx(0.55)
    assert reported[-1] > 0.9


def test_a_neuron_does_not_look_again_before_it_has_rested() -> None:
    doubling: MetricSampler[float] = MetricSampler(Metric.ACTIVITY, 10.0, lambda value, now: value)
    nerve = MetricSet((doubling,))
    fired = [tick for tick in range(30) if nerve.sample(2.0**tick, START + tick, 1.0)]
    assert fired == [0, 10, 20]


def test_a_neuron_that_fails_leaves_the_others_alone() -> None:
    nerve = MetricSet[None](
        (
            MetricSampler(Metric.MENTIONS, 3.0, lambda _, now: 1 / (now - now)),
            MetricSampler(Metric.ACTIVITY, 3.0, lambda _, now: 0.5),
        )
    )
    assert nerve.sample(None, START, 1.0) == [(Metric.ACTIVITY, 0.5)]


def test_neurons_of_channels_rest_three_to_sixty_seconds() -> None:
    assert all(3 <= neuron.refractory <= 60 for neuron in CHANNEL)


# Energy.


def test_tokens_drain_energy_and_time_brings_it_back_unrounded() -> None:
    energy = TokenBudget(tokens=100_000, per_hour=0.25)
    energy.spend(50_000)
    assert energy.level == pytest.approx(0.5)
    for _ in range(3600):  # steps of 0.00007, which rounding would swallow
        energy.recover(1.0)
    assert energy.level == pytest.approx(0.75)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 10**6)), max_size=20))
def test_energy_is_bounded_whatever_happens(steps: list[tuple[int, float]]) -> None:
    energy = TokenBudget(tokens=10_000, per_hour=1.0)
    for tokens, seconds in steps:
        energy.spend(tokens)
        assert LEAST <= energy.level <= 1
        energy.recover(seconds)
        assert LEAST <= energy.level <= 1
        assert 1 <= energy.factor <= 1.95


# Pressure.


@pytest.mark.parametrize(
    ("count", "oldest", "energy", "pressure"),
    [
        (0, 0.0, 0.05, 0.0),
        (1, 0.0, 1.0, 0.12),
        (5, 0.0, 1.0, 0.6),
        (2, 3600.0, 1.0, 0.44),
        (5, 1800.0, 1.0, 0.7),
        (9, 7200.0, 1.0, 1.0),
        (5, 0.0, 0.5, 0.69),
        (5, 7200.0, 0.05, 1.0),
    ],
)
def test_thoughts_press_by_number_and_age_and_more_when_tired(
    count: int, oldest: float, energy: float, pressure: float
) -> None:
    assert thought_pressure(count, oldest, energy) == pytest.approx(pressure)


# Acknowledgements.


def test_what_was_handled_comes_up_again_when_somebody_speaks_there() -> None:
    known = Acknowledgements()
    known.put(TriggerKind.CONTACT, FROGS, Acknowledgement(AcknowledgementState.HANDLED, 0.4))
    assert known.blocks(TriggerKind.CONTACT, FROGS, 0.9, NOON)
    assert not known.blocks(TriggerKind.SILENCE, FROGS, 0.9, NOON)
    known.on_message(FROGS)
    assert not known.blocks(TriggerKind.CONTACT, FROGS, 0.4, NOON)


def test_one_persons_line_never_clears_what_was_handled_on_another_channel() -> None:
    known = Acknowledgements()
    for place in (FROGS, TOADS):
        known.put(TriggerKind.CONTACT, place, Acknowledgement(AcknowledgementState.HANDLED, 0.4))
    known.on_message(FROGS)
    assert known.blocks(TriggerKind.CONTACT, TOADS, 0.4, NOON)


def test_what_was_put_off_waits_for_its_time_or_until_it_has_grown_by_a_quarter() -> None:
    known = Acknowledgements()
    hour = NOON + timedelta(hours=1)
    known.put(TriggerKind.CONTACT, FROGS, Acknowledgement(AcknowledgementState.DEFERRED, 0.4, hour))
    known.on_message(FROGS)
    assert known.blocks(TriggerKind.CONTACT, FROGS, 0.64, NOON)
    assert not known.blocks(TriggerKind.CONTACT, FROGS, 0.65, NOON)
    known.put(TriggerKind.CONTACT, FROGS, Acknowledgement(AcknowledgementState.DEFERRED, 0.4, hour))
    assert not known.blocks(TriggerKind.CONTACT, FROGS, 0.4, hour)


def test_what_was_suppressed_stays_so_until_it_is_lifted() -> None:
    known = Acknowledgements()
    known.put(TriggerKind.CONTACT, FROGS, Acknowledgement(AcknowledgementState.SUPPRESSED))
    known.on_message(FROGS)
    assert known.blocks(TriggerKind.CONTACT, FROGS, 1.0, NOON + timedelta(days=300))
    known.lift(TOADS)
    assert known.blocks(TriggerKind.CONTACT, FROGS, 1.0, NOON)
    known.lift(FROGS)
    assert not known.blocks(TriggerKind.CONTACT, FROGS, 1.0, NOON)


# What is measured of a channel.


def test_a_question_that_nobody_answers_presses_more_and_more() -> None:
    channel = ChannelActivity()
    said(channel, "ada", "how do I mount a cd?", 0)
    assert channel.unanswered_level(START) == 0
    assert channel.unanswered_level(START + 300) == pytest.approx(0.5)
    assert channel.unanswered_level(START + 900) == 1
    assert channel.unanswered_level(START + 1900) == 0  # she has gone long since


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
    channel = ChannelActivity()
    said(channel, "ada", "how do I mount a cd?", 0)
    said(channel, who, text, 30)
    assert channel.unanswered_level(START + 300) == 0


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("bob", "carl: yes"),
        ("bob", "and how do I open it?"),
        ("ada", "it is a blue one"),
    ],
)
def test_a_question_is_not_answered_by(who: str, text: str) -> None:
    channel = ChannelActivity()
    said(channel, "ada", "how do I mount a cd?", 0)
    said(channel, who, text, 30)
    assert channel.unanswered_level(START + 300) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "text", ["bob: are you there?", "see http://x.example/?page", "terra, how are you?", "so what"]
)
def test_it_is_no_question_to_all(text: str) -> None:
    channel = ChannelActivity()
    said(channel, "ada", text, 0)
    assert channel.unanswered_level(START + 600) == 0


def test_there_is_no_room_where_all_speak_at_once_or_nobody_does() -> None:
    channel = ChannelActivity()
    for second in range(10):
        said(channel, f"nick{second}", "hello", second)
    assert channel.availability(START + 10) < 0.25
    assert channel.availability(START + 75) == 1
    assert channel.availability(START + 3600) == 0


def test_a_silence_is_sudden_only_after_a_lively_talk() -> None:
    lively, sleepy = Aggregate(), Aggregate()
    lively.add(Metric.ACTIVITY, 0.5, START)
    sleepy.add(Metric.ACTIVITY, 0.1, START)
    for seen in (lively, sleepy):
        seen.add(Metric.QUIET, 0.2, START + 200)
        assert seen.silence(START + 310) == 0
        seen.add(Metric.QUIET, 0.4, START + 360)
    assert lively.silence(START + 360) == 0.4
    assert sleepy.silence(START + 360) == 0
    assert lively.silence(START + 700) == 0  # no longer sudden
