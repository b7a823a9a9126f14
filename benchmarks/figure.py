"""Benchmark figures: a measured value with its unit and goals, and percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value. `goal` is its upper limit, `least` its lower limit (None: no limit)."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    least: float | None = None

    @property
    def verdict(self) -> str:
        """The goals with "met" or "MISSED", empty if there are none."""
        goals = []
        if self.goal is not None:
            goals.append(f"at most {self.goal:g}: {_met(self.value <= self.goal)}")
        if self.least is not None:
            goals.append(f"at least {self.least:g}: {_met(self.value >= self.least)}")
        return ", ".join(goals)


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` (0 to 1) of them do not exceed
    (nearest-rank method). Raises IndexError if there are none."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
