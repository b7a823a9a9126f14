"""The time of day, and waiting for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Protocol

_NAP = 30.0  # seconds, the longest that a changed system clock or a suspended machine goes unseen


class Clock(Protocol):
    """Where a job gets the time from."""

    def now(self) -> datetime:
        """The time, in UTC."""

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""


class SystemClock:
    """The machine's clock. It is looked at again and again, because it may be set anew."""

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.now(UTC)

    async def sleep_until(self, time: datetime) -> None:
        """Return at `time`, at once when it has passed."""
        while (left := (time - self.now()).total_seconds()) > 0:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(min(left, _NAP))
