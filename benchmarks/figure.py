"""One measured number, with what it means and what it is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` is the most the value may be; None where there is no goal."""

    name: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """Whether the goal is met, in a word."""
        if self.goal is None:
            return ""
        return f"goal {self.goal:g}: {'met' if self.value <= self.goal else 'MISSED'}"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
