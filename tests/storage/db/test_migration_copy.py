"""Before the tables of a file are changed it is copied, and the copy is the way back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest

from storage import log_index
from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.db.migration_copy import copies
from storage.db.secure_delete import COPY_LIFETIME, remove_copies
from storage.log import ChatLog, Query
from storage.privacy.erasure import NamedPerson, forget
from tests.kit.forgetting import small_disk
from tests.kit.old_file import file_of_version, newest_version

OLD = 17
NEWEST = newest_version()
FROGS = "frog " * 20


def old_log(path: Path, lines: int = 3) -> None:
    with file_of_version(path, OLD) as file:
        file.execute("INSERT INTO channels VALUES (1, 'irc', '#pond', 0)")
        rows = [
            (n, 1, "PRIVMSG", n * 1000, "ada", "u", "h", None, "", f"{n} {FROGS}", None, 0, None)
            for n in range(1, lines + 1)
        ]
        file.insert_rows("events", rows)
        log_index.add_events(file, rows, private=(), drift=0)


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("PRAGMA user_version").fetchone()[0])


def copies_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.before-*"))


async def open_once(path: Path) -> list[str]:
    """Open a file, as every tendril does, and return what is in its log."""
    async with Database.open(path) as database:
        return [each.text for each in await ChatLog(database).find(Query(scope=PUBLIC))]


async def test_the_copy_is_the_file_as_it_was_and_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    old_log(path)
    lines = await open_once(path)
    assert len(lines) == 3
    (copy,) = copies(path)
    assert copy.name == f"irc.db.before-{NEWEST}"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (version_of(copy), version_of(path)) == (OLD, NEWEST)
    with closing(sqlite3.connect(copy)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert [row[0] for row in file.execute("SELECT text FROM events ORDER BY id")] == lines


async def test_the_copy_put_in_the_place_of_the_file_is_the_way_back(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    old_log(path)
    before = await open_once(path)
    async with Database.open(path) as database:
        (event,) = await ChatLog(database).find(Query(scope=PUBLIC, limit=1))
        await ChatLog(database).add([event])
    # As docs/log.md says: all stopped, the copy in its place, and nothing beside it.
    copies(path)[0].replace(path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    assert version_of(path) == OLD
    assert await open_once(path) == before


async def test_a_new_file_and_one_that_is_up_to_date_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    for _ in range(2):
        await open_once(path)
    assert copies(path) == []


async def test_of_each_file_the_last_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    for name in ("irc.db.before-9", "irc.db.before-16.part", "web.db.before-9"):
        (tmp_path / name).touch()
    old_log(path)
    await open_once(path)
    assert copies_in(tmp_path) == [f"irc.db.before-{NEWEST}", "web.db.before-9"]


async def test_where_the_disk_is_full_nothing_is_changed_and_it_says_what_to_do(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 4 << 20) as mounted:
        if not mounted:
            pytest.skip("only root can mount a small disk")
        path = folder / "irc.db"
        old_log(path, lines=1000)
        free = shutil.disk_usage(folder).free
        (folder / "filler").write_bytes(bytes(free - 64 * 1024))
        before = path.read_bytes()
        with pytest.raises(Unavailable, match=r"irc\.db: the copy .* MB in .*; make room"):
            await open_once(path)
        assert path.read_bytes() == before
        assert version_of(path) == OLD
        assert copies(path) == []


async def test_copies_go_after_a_week(tmp_path: Path) -> None:
    old, new = tmp_path / "web.db.before-9", tmp_path / "irc.db.before-19"
    for path, days in ((old, 8), (new, 6)):
        path.touch()
        then = time.time() - days * 86_400
        os.utime(path, (then, then))
    remove_copies(tmp_path / "irc.db", tmp_path, COPY_LIFETIME)
    assert copies_in(tmp_path) == [new.name]


async def test_no_copy_outlives_a_forgetting_also_one_made_while_it_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "irc.db"
    old_log(path)
    await open_once(path)
    (tmp_path / "web.db.before-9").touch()
    async with Database.open(path) as database:
        log = ChatLog(database)
        gone = await forget(database, log, NamedPerson("irc", nick="ada"), tmp_path)
    assert gone.events == 3
    assert copies_in(tmp_path) == []
