"""A test of a tendril ends: by signals as any other, and if it awaits what never comes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from terrarium.testing import running
from tests.kit.room_tendril import RoomTendril, rooms_config


async def test_a_test_that_awaits_what_never_comes_ends_and_signals_are_left_alone(
    tmp_path: Path,
) -> None:
    async def hangs(data: Path) -> None:
        async with running(RoomTendril(rooms_config(data)), seconds=5):
            during.extend(handlers())
            await asyncio.Event().wait()

    during: list[object] = []
    before = handlers()
    with pytest.raises(TimeoutError, match="rooms ran, but what the test awaits did not come"):
        await hangs(tmp_path)
    assert during == before == handlers()


def handlers() -> list[object]:
    return [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
