"""A clock that a test sets by hand."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from tests.kit.patience import PATIENCE


class ManualClock:
    """Time stands still until `advance` or `set`; sleepers wake in the order of their times."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._sleepers: list[datetime] = []
        self._news = asyncio.Condition()

    def now(self) -> datetime:
        """The time that was set last."""
        return self._now

    def monotonic(self) -> float:
        """The seconds from the start of 1970 to it."""
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been set so many seconds ahead."""
        await self.sleep_until(self._now + timedelta(seconds=seconds))

    async def sleep_until(self, time: datetime) -> None:
        """Return when the clock has been set to `time` or later."""
        if time <= self._now:
            return
        async with self._news:
            self._sleepers.append(time)
            self._news.notify_all()
            try:
                await self._news.wait_for(lambda: self._now >= time)
            finally:
                self._sleepers.remove(time)

    async def set(self, time: datetime) -> None:
        """Let it be `time`."""
        async with self._news:
            self._now = time
            self._news.notify_all()

    async def advance(self, step: timedelta) -> None:
        """Let time pass."""
        await self.set(self._now + step)

    async def asleep(self, count: int = 1) -> list[datetime]:
        """Wait until `count` sleepers wait for a time that has not come; returns their times."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self._waiting()) >= count)
            return self._waiting()

    async def asleep_until(self, time: datetime, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until somebody sleeps until `time`."""
        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(lambda: time in self._sleepers)

    def _waiting(self) -> list[datetime]:
        return sorted(time for time in self._sleepers if time > self._now)
