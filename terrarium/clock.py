"""Clocks: the time of day, monotonic time, sleeping, and backoff between attempts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

_MAX_SLEEP = 30.0  # seconds until a change of the system clock, or a suspended machine, is noticed


def _elapsed() -> float:
    """Return seconds since some moment; with those of suspends where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SteadyClock:
    """Unix time that never jumps: the time of day at the start plus the time elapsed since.

    For rate windows, quotas and sweeps. If they used the time of day, a correction of it could lock
    a quota for a day, or let a sweep remove what is not old.
    """

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, elapsed: Callable[[], float] = _elapsed
    ) -> None:
        self._elapsed = elapsed
        self._offset = time_of_day() - elapsed()

    def time(self) -> float:
        """Return the Unix time in seconds."""
        return self._offset + self._elapsed()

    def now(self) -> datetime:
        """Return the same as a time in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)


class Clock:
    """The machine's clock, the source of time for everything that waits or measures; `sleep_until`
    polls the time of day, as that may be changed meanwhile."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some moment, unaffected by changes of the time of day."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of `monotonic`."""
        await asyncio.sleep(seconds)

    async def sleep_until(self, time: datetime) -> None:
        """Sleep until `time`; return at once if it has passed."""
        while (left := (time - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(left, _MAX_SLEEP))


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
        """Record that the attempt has ended, or never ran; return the seconds to wait: at least
        `at_least`, but never more than `longest`."""
        if self._since is not None and self._clock() - self._since >= self._stable:
            self._next = self._first
        self._since = None
        wait = max(self._next, at_least)
        self._next = min(self._next * 2, self._longest)
        return min(wait * (1 + self._jitter() / 4), self._longest)
