"""The time, and waiting for it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

_NAP = 30.0  # seconds, the longest that a changed system clock or a suspended machine goes unseen


class Clock(Protocol):
    """Where whatever waits or measures gets the time from."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds since some moment; nobody sets them anew."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of `monotonic`."""

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""


class SystemClock:
    """The machine's clock. Its time of day is looked at again and again, as it may be set anew."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment; nobody sets them anew."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of `monotonic`."""
        await asyncio.sleep(seconds)

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""
        while (left := (time - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(left, _NAP))
