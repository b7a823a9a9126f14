"""A database file: opened, migrated, written by one and read by many."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.chat_log.event import PUBLIC, Place
from storage.chat_log.event_table import Query
from storage.db.database import Connection, Database, from_micros, to_micros
from storage.db.errors import Unavailable
from storage.log import ChatLog
from storage.queues.outbox import Outbox
from tests.kit.lines import said
from tests.kit.patience import PATIENCE
from tests.kit.stores import Stores

PUT_TEXT = (
    "INSERT INTO outbox (key, network, channel, text, time) VALUES (random(), 'n', 'c', ?, 0)"
)
PUT = PUT_TEXT.replace("?", "'t'")


async def test_a_new_file_is_made_with_its_folders_and_is_up_to_date(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "new" / "x.db") as database:
        row = await database.fetch_one("PRAGMA user_version")
    assert row is not None
    assert row[0] >= 31


async def test_two_openings_at_once_of_a_new_file_both_succeed(tmp_path: Path) -> None:
    async def opened(name: str) -> int:
        async with Database.open(tmp_path / name) as database:
            return len(await database.fetch_all("SELECT * FROM events"))

    for name in map(str, range(10)):
        assert await asyncio.gather(*(opened(name) for _ in range(8))) == [0] * 8


async def test_writes_of_two_tasks_come_one_after_the_other(tmp_path: Path) -> None:
    def add(db: Connection) -> None:
        (last,) = db.execute("SELECT last_run FROM schedule").fetchone()
        db.execute("UPDATE schedule SET last_run = ?", [last + 1])

    async with Database.open(tmp_path / "x.db") as database:
        await database.execute("INSERT INTO schedule (job, last_run) VALUES ('job', 0)")
        await asyncio.gather(*(database.write(add, durable=n % 2 == 0) for n in range(20)))
        rows = await database.fetch_all("SELECT last_run FROM schedule")
    assert [row["last_run"] for row in rows] == [20]


async def test_a_process_has_one_connection_that_writes_and_three_that_read(tmp_path: Path) -> None:
    ready = threading.Barrier(3)

    def identity(db: Connection) -> int:
        ready.wait()  # for three readers at once
        return id(db)

    async with Database.open(tmp_path / "x.db") as database:
        readers = await asyncio.gather(*(database.read(identity) for _ in range(9)))
        writers = [await database.write(id) for _ in range(3)]
    assert len(set(readers)) == 3
    assert len(set(writers)) == 1


async def test_readers_cannot_write_nor_read_what_is_not_there(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "x.db") as database:
        with pytest.raises(Unavailable, match="readonly"):
            await database.fetch_all("DELETE FROM events RETURNING 1")
        with pytest.raises(Unavailable, match="no such table: nowhere"):
            await database.fetch_one("SELECT * FROM nowhere")


async def test_what_is_put_does_not_pile_up_beside_the_file(tmp_path: Path) -> None:
    def put(db: Connection) -> None:
        db.execute(PUT_TEXT, ["t" * 4_000])

    async with Database.open(tmp_path / "x.db") as database:
        for _ in range(1_000):
            await database.write(put, durable=False)
            await database.sync()
        assert (tmp_path / "x.db-wal").stat().st_size < 5_000_000


async def test_changes_are_told_when_somebody_else_has_written(stores: Stores) -> None:
    async with (
        Database.open(stores("x")) as one,
        Database.open(stores("x")) as two,
        asyncio.timeout(PATIENCE),
    ):
        changes = one.changes()
        await anext(changes)  # as of now
        await ChatLog(two).add([said()])
        await anext(changes)
        assert len(await ChatLog(one).find(Query(scope=PUBLIC))) == 1
        await Outbox(two).put("key", Place("n", "#c"), "hello")
        await anext(changes)
        await changes.aclose()


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(Unavailable, match="taken"):
        async with Database.open(tmp_path / "taken" / "x.db"):
            pass


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])))
def test_times_survive_to_the_microsecond(time: datetime) -> None:
    assert from_micros(to_micros(time)) == time


async def test_work_that_is_cancelled_at_any_moment_leaves_the_file_writable(
    tmp_path: Path,
) -> None:
    def insert(db: Connection) -> None:
        db.execute(PUT)

    async with Database.open(tmp_path / "x.db") as database:
        for steps in range(20):
            writing = asyncio.create_task(database.write(insert, durable=steps % 2 == 0))
            for _ in range(steps):
                await asyncio.sleep(0)
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            await database.write(insert)
        rows = await database.fetch_all("SELECT * FROM outbox")
    assert len(rows) >= 20


async def test_an_error_in_work_takes_all_of_it_back_and_what_lasts_waits_for_the_disk(
    tmp_path: Path,
) -> None:
    def fail(db: Connection) -> None:
        db.execute("INSERT INTO schedule (job, last_run) VALUES ('job', 1)")
        raise ZeroDivisionError

    def level(db: Connection) -> int:
        return int(db.execute("PRAGMA synchronous").fetchone()[0])

    full, normal = 2, 1
    async with Database.open(tmp_path / "x.db") as database:
        for durable in (True, False):
            with pytest.raises(ZeroDivisionError):
                await database.write(fail, durable=durable)
        assert await database.fetch_all("SELECT * FROM schedule") == []
        assert await database.write(level) == full
        assert await database.write(level, durable=False) == normal
        await database.sync()
        assert await database.write(level) == full


async def test_a_disk_that_fails_is_told_of(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "x.db") as database:
        await database.write(lambda db: db.execute("DELETE FROM schedule").rowcount)
        (tmp_path / "x.db-wal").rename(tmp_path / "elsewhere")
        (tmp_path / "x.db-wal").symlink_to("x.db-wal")
        with pytest.raises(Unavailable, match="to the disk"):
            await database.sync()


async def test_a_file_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with Database.open(path) as database:
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE schedule")
        with pytest.raises(Unavailable, match="schedule"):
            await database.execute("DELETE FROM schedule")


@contextmanager
def broken_wal(path: Path) -> Iterator[None]:
    """Make every fsync of a store's write-ahead log fail for those who have it open."""
    links = Path("/proc/self/fd").iterdir()
    descriptors = [int(each.name) for each in links if _leads_to(each, f"{path}-wal")]
    aside = {each: os.dup(each) for each in descriptors}
    with open("/dev/null", "r+b") as broken:  # which cannot be fsynced
        for each in descriptors:
            os.dup2(broken.fileno(), each)
    try:
        yield
    finally:
        for each, kept in aside.items():
            os.dup2(kept, each)
            os.close(kept)


def _leads_to(link: Path, target: str) -> bool:
    with suppress(FileNotFoundError):
        return str(link.readlink()) == target
    return False


async def test_what_a_failed_commit_was_to_bring_to_the_disk_is_written_again_by_a_sync(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "x.db", tmp_path / "copy.db"
    async with Database.open(path) as database:
        await database.write(lambda db: db.execute(PUT), durable=False)
        with broken_wal(path), pytest.raises(Unavailable):
            await database.write(lambda db: db.execute(PUT))
        await database.sync()
        shutil.copy(path, copy)  # without the log, which the failed fsync was for
    with closing(sqlite3.connect(copy)) as file:
        assert len(file.execute("SELECT * FROM outbox").fetchall()) == 1
