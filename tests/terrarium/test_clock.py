"""The machine's clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from terrarium.clock import Clock
from tests.kit.patience import PATIENCE


async def test_sleep_ends_at_the_time_and_at_once_if_it_has_passed() -> None:
    clock = Clock()
    time = clock.now() + timedelta(milliseconds=60)
    await clock.sleep_until(time)
    assert datetime.now(UTC) >= time
    async with asyncio.timeout(PATIENCE):
        await clock.sleep_until(clock.now() - timedelta(days=1))
