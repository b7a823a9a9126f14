"""Exponential backoff between attempts."""

from __future__ import annotations

import time
from collections.abc import Callable


class Backoff:
    """Waits of `first` seconds, doubling up to `longest`; reset after a run of `stable` seconds.

    `jitter` returns a number from 0 to 1, by which each wait grows by up to a quarter, so that many
    clients do not retry in lockstep. `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        first: float,
        longest: float,
        stable: float = 60.0,
        *,
        jitter: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._longest, self._stable = first, longest, stable
        self._jitter, self._clock = jitter, clock
        self._next = first
        self._since: float | None = None

    def mark_started(self) -> None:
        """Record that an attempt has begun to run."""
        self._since = self._clock()

    def delay(self, at_least: float = 0.0) -> float:
        """Record that the attempt has ended, or never ran; return the seconds to wait.

        That is `at_least` if this is more than the backoff, but never more than `longest`.
        """
        if self._since is not None and self._clock() - self._since >= self._stable:
            self._next = self._first
        self._since = None
        wait = max(self._next, at_least)
        self._next = min(self._next * 2, self._longest)
        return min(wait * (1 + self._jitter() / 4), self._longest)
