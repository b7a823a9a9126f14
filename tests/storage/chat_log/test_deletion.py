"""What is removed from the log is gone: from searches, from counts and from the file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from storage.chat_log import deletion, statistics
from storage.chat_log.event import EVERYTHING, PUBLIC, EventType
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.search.models import SearchQuery
from tests.kit.lines import said

DAY = 24 * 60  # minutes


@pytest.fixture
async def file_log(tmp_path: Path) -> AsyncIterator[ChatLog]:
    async with Database.open(tmp_path / "irc.db") as database:
        yield ChatLog(database)


async def count(log: ChatLog, text: str) -> int:
    return (await log.search(SearchQuery(text=text, within=Query(scope=EVERYTHING)))).count


def tables(path: Path) -> set[str]:
    """The full-text tables of a log."""
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute(
            "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'"
            " AND (name LIKE 'words%' OR name LIKE 'parts%')"
        )
        return {row[0] for row in rows}


async def test_a_removed_line_or_event_is_not_found_any_more(log: ChatLog) -> None:
    joined = replace(said(""), type=EventType.JOIN)
    frogs, _, joined_id = await log.add([said("the frogs"), said("the toads"), joined])
    assert await deletion.remove(log.database, []) == 0
    assert await deletion.remove(log.database, [frogs, frogs + 99, joined_id]) == 2
    assert await count(log, "frogs") == 0
    assert await count(log, "*rog*") == 0
    assert await count(log, "the") == 1
    assert [event.text for event in await log.find(Query(scope=PUBLIC))] == ["the toads"]
    assert (await log.read(statistics.stats, Query(scope=PUBLIC))).lines == 1


async def test_removing_many_and_adding_again_leaves_the_index_true(log: ChatLog) -> None:
    ids = await log.add([said(f"frogs {n}", n * DAY / 50) for n in range(1_200)])
    assert await deletion.remove(log.database, ids[::2]) == 600
    await deletion.scrub(log.database)
    assert await count(log, "frogs") == 600
    await log.add([said("frogs again", n * DAY) for n in range(10)])
    assert await count(log, "frogs") == 610
    assert await count(log, "again") == 10


async def test_after_scrubbing_no_word_is_left_in_the_file(
    tmp_path: Path, file_log: ChatLog
) -> None:
    path, log = tmp_path / "irc.db", file_log
    private = said("Xylophonic", nick="Quetzal", channel="Quetzal")
    ids = await log.add([said("Zyzzyva Xylophonic", nick="Quetzal"), private])
    for n in range(50):
        await log.add([said(f"frogs {n}", nick=f"ada{n}")])
    assert b"xylophonic" in _everything(path)
    assert await deletion.remove(log.database, ids) == 2
    await deletion.scrub(log.database)
    with closing(sqlite3.connect(path)) as file:
        file.execute("VACUUM")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert await count(log, "frogs") == 50
    left = _everything(path)
    for word in (b"zyzzyva", b"xylophonic", b"quetzal", b"quetzal".hex().encode(), b"zyz", b"tza"):
        assert word not in left, word


async def test_a_stretch_of_which_nothing_is_left_goes_whole(
    tmp_path: Path, file_log: ChatLog
) -> None:
    log = file_log
    old, _ = await log.add([said("frogs", -900 * DAY), said("frogs")])
    assert len(tables(tmp_path / "irc.db")) == 4
    await deletion.remove(log.database, [old])
    await deletion.scrub(log.database)
    assert len(tables(tmp_path / "irc.db")) == 2
    assert await count(log, "frogs") == 1
    await log.add([said("frogs", -900 * DAY)])
    assert await count(log, "frogs") == 2


def _everything(path: Path) -> bytes:
    """All bytes of a file and of its log, in small letters."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return b"".join(each.read_bytes() for each in files if each.exists()).lower()
