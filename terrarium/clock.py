"""Clocks: the time of day, monotonic time, and sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

_MAX_SLEEP = 30.0  # seconds until a change of the system clock, or a suspended machine, is noticed


class Clock(Protocol):
    """The source of time for everything that waits or measures."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since some moment, unaffected by changes of the time of day."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of `monotonic`."""

    async def sleep_until(self, time: datetime) -> None:
        """Sleep until `time`; return at once if it has passed."""


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


class SystemClock:
    """The machine's clock. `sleep_until` polls the time of day, as it may be changed meanwhile."""

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
