"""Clocks: the time of day, a monotonic time, and sleeping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

_NAP = 30.0  # seconds, the longest that a changed system clock or a suspended machine goes unseen


class Clock(Protocol):
    """The source of time for everything that waits or measures."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since some moment, unaffected by changes of the time of day."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of `monotonic`."""

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""


def _elapsed() -> float:
    """Return seconds since some moment, of a suspended machine too where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class SteadyClock:
    """Seconds since 1970 that only go forward, each as long as the other: the time of day when this
    was made, and what has passed since. For windows, quotas and sweeps, which a time of day that is
    corrected would lock for a day, or let remove what is not old."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, elapsed: Callable[[], float] = _elapsed
    ) -> None:
        self._elapsed = elapsed
        self._offset = time_of_day() - elapsed()

    def time(self) -> float:
        """Return the seconds."""
        return self._offset + self._elapsed()

    def now(self) -> datetime:
        """Return them as a time in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)


class SystemClock:
    """The machine's clock. Sleeping polls its time of day, which may be changed meanwhile."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since some moment, unaffected by changes of the time of day."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of `monotonic`."""
        await asyncio.sleep(seconds)

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""
        while (left := (time - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(left, _NAP))
