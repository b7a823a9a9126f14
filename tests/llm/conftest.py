"""Fixtures of the tests of llm: an empty store, and the skills that people teach in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.db.database import Database
from storage.memory.skills import SkillTable


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with Database.open(tmp_path / "irc.db") as database:
        yield database


@pytest.fixture
def table(database: Database) -> SkillTable:
    return SkillTable(database)
