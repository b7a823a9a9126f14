"""The lowest layer: measures channels, and reports what has changed. No neuron calls a model.

A neuron looks again when its refractory period is over. One that fails is silent; the others work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from llm.attention.channel_activity import ChannelActivity
from llm.attention.threshold import WEBER_FECHNER, Threshold
from llm.attention.trigger_kinds import Metric

T = TypeVar("T")

_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MetricSampler(Generic[T]):
    """Measures `sense` of a T: `value` is given it and the time in seconds since 1970.

    `refractory` is in seconds.
    """

    sense: Metric
    refractory: float
    value: Callable[[T, float], float]
    threshold: Threshold = WEBER_FECHNER


CHANNEL: Sequence[MetricSampler[ChannelActivity]] = (
    MetricSampler(Metric.MENTIONS, 3.0, ChannelActivity.mention_rate),
    MetricSampler(Metric.ACTIVITY, 10.0, ChannelActivity.activity),
    MetricSampler(Metric.QUIET, 30.0, ChannelActivity.quiet),
    MetricSampler(Metric.UNANSWERED, 15.0, ChannelActivity.unanswered_level),
)
"""What is measured of every channel."""


class MetricSet(Generic[T]):
    """The neurons of one T, each with the value that it has reported last and when it looked."""

    def __init__(self, neurons: Sequence[MetricSampler[T]]) -> None:
        self._neurons = neurons
        self._emitted = dict.fromkeys(range(len(neurons)), 0.0)
        self._looked = dict.fromkeys(range(len(neurons)), 0.0)

    def sample(self, subject: T, now: float, alertness: float) -> list[tuple[Metric, float]]:
        """What has changed so much since it was last reported that it is worth a signal."""
        fired: list[tuple[Metric, float]] = []
        for number, neuron in enumerate(self._neurons):
            if now - self._looked[number] < neuron.refractory:
                continue
            self._looked[number] = now
            value = _measure(neuron, subject, now)
            emitted = self._emitted[number]
            if value is not None and neuron.threshold.significant(value, emitted, alertness):
                self._emitted[number] = value
                fired.append((neuron.sense, value))
        return fired


def _measure(neuron: MetricSampler[T], subject: T, now: float) -> float | None:
    """The value, or None of a neuron that fails."""
    try:
        return neuron.value(subject, now)
    except _FAULTS:
        _log.exception("attention.neuron_failed", neuron=neuron.sense.value)
        return None
