"""The middle layer's memory of one channel: what the neurons reported, in buckets of 5 minutes."""

from __future__ import annotations

from llm.attention.trigger_kinds import Metric

BUCKET = 300.0
"""Seconds."""

_LIVELY = 1 / 3  # activity of the bucket before, for a silence to be sudden
_SILENT = 1 / 3  # of what QUIET measures: five minutes


class Aggregate:
    """The values as last reported, and the peaks of this bucket and the one before."""

    def __init__(self) -> None:
        self._values: dict[Metric, float] = {}
        self._peaks: dict[Metric, float] = {}
        self._before: dict[Metric, float] = {}
        self._bucket = 0

    def add(self, sense: Metric, value: float, now: float) -> None:
        """Take in a report, at a time in seconds since 1970."""
        self._turn(now)
        self._values[sense] = value
        self._peaks[sense] = max(value, self._peaks.get(sense, 0.0))

    def value(self, sense: Metric) -> float:
        """What was reported last; 0 when nothing was."""
        return self._values.get(sense, 0.0)

    def silence(self, now: float) -> float:
        """How long nobody has spoken, when that is sudden: many did just before. Else 0."""
        self._turn(now)
        quiet = self.value(Metric.QUIET)
        lively = self._before.get(Metric.ACTIVITY, 0.0) >= _LIVELY
        return quiet if lively and quiet >= _SILENT else 0.0

    def _turn(self, now: float) -> None:
        """Begin a new bucket when it is time."""
        bucket = int(now // BUCKET)
        if bucket != self._bucket:
            self._before = self._peaks if bucket == self._bucket + 1 else {}
            self._bucket, self._peaks = bucket, {}
