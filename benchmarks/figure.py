"""One measured number, with what it means and what it is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` is the most the value may be, `least` the least; None where there is no such goal."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    least: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the goal is met, in a word."""
        goals = []
        if self.goal is not None:
            goals.append(f"at most {self.goal:g}: {_met(self.value <= self.goal)}")
        if self.least is not None:
            goals.append(f"at least {self.least:g}: {_met(self.value >= self.least)}")
        return ", ".join(goals)


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
