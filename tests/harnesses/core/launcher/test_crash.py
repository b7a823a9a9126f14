"""A tendril that crashes says so in one line; the traceback is in a file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from harnesses.core.launcher.tendrils import report_crash
from terrarium.config import Config
from tests.kit.room_tendril import PERSONA, RoomTendril


class BrokenTendril(RoomTendril):
    """A tendril whose medium is broken."""

    async def serve(self) -> None:
        """Fail deep inside of nested groups of tasks."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._fail())

    async def _fail(self) -> None:
        raise ValueError("the cable\nis cut")


async def test_a_crash_is_one_line_and_its_traceback_a_file(tmp_path: Path) -> None:
    persona = tmp_path / "persona.md"
    persona.write_text("You are Terra.")
    config = Config({"agent": {"personas": {"rooms": str(persona)}}}, None, tmp_path)
    with pytest.raises(ValueError, match="cable") as caught:
        await BrokenTendril(config).run()
    crashed = str(report_crash("rooms", tmp_path, caught.value))
    path = tmp_path / "run" / "rooms.crash"
    head = 'the tendril "rooms" has crashed: ValueError: the cable is cut'
    assert re.fullmatch(rf"{head} \(test_crash.py, line \d+\); all of it is in {path}", crashed)
    assert "in _fail" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


class CarelessTendril(RoomTendril):
    """A tendril that uses a name that is taken."""

    async def serve(self) -> None:
        """Replace the outbox."""
        self.outbox = None  # type: ignore[assignment]


async def test_the_line_that_is_told_is_one_of_the_tendrils_own(tmp_path: Path) -> None:
    config = Config({"agent": {"personas": {"rooms": str(PERSONA)}}}, None, tmp_path)
    with pytest.raises(AttributeError) as caught:
        await CarelessTendril(config).run()
    crashed = str(report_crash("rooms", tmp_path, caught.value))
    assert "self.outbox is a part of every tendril; choose another name (test_crash.py" in crashed


async def test_the_line_is_told_also_when_no_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, not a folder")
    crashed = str(report_crash("rooms", tmp_path, ValueError("x" * 500)))
    assert crashed == f'the tendril "rooms" has crashed: ValueError: {"x" * 200}'
