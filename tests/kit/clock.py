"""Clock whose time a test sets explicitly."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from tests.kit.patience import PATIENCE


class ManualClock:
    """A clock that stands still except for `advance` and `set`, which wake due sleepers."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._sleepers: list[datetime] = []
        self._news = asyncio.Condition()

    def now(self) -> datetime:
        """Return the time that was set last."""
        return self._now

    def monotonic(self) -> float:
        """Return the current time as a Unix timestamp."""
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been set at least `seconds` ahead."""
        await self.sleep_until(self._now + timedelta(seconds=seconds))

    async def sleep_until(self, time: datetime) -> None:
        """Wait until the clock has been set to `time` or later."""
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
        """Set the time and wake sleepers that are due."""
        async with self._news:
            self._now = time
            self._news.notify_all()

    async def advance(self, step: timedelta) -> None:
        """Set the time ahead by `step`."""
        await self.set(self._now + step)

    async def asleep(self, count: int = 1) -> list[datetime]:
        """Wait until at least `count` sleepers wait for a future time; return these times."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: len(self._waiting()) >= count)
            return self._waiting()

    async def asleep_until(self, time: datetime, timeout: float = 10.0) -> None:  # noqa: ASYNC109
        """Wait until there is a sleeper that waits for `time`. Raises TimeoutError."""
        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(lambda: time in self._sleepers)

    def _waiting(self) -> list[datetime]:
        return sorted(time for time in self._sleepers if time > self._now)
