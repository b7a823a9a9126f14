"""Clocks whose time a test sets explicitly."""

from __future__ import annotations

from terrarium.testing import ManualClock as ManualClock


class Seconds:
    """Monotonic seconds, for those who call their clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
