"""`terrarium storage migrate`, by the real command: killed, beside a bot, there and back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harnesses.core.tendril.status import StatusFile
from storage.chat_log.event import EVERYTHING, Event, EventType
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.db.process_lock import hold_lock
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, Turn
from storage.transfer.transfer import ROWS_PER_STEP
from tests.kit.command import begun, line_with, terrarium
from tests.kit.postgres import postgres_database

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LINES = 4 * ROWS_PER_STEP


def said(number: int) -> Event:
    return Event(
        network="irc",
        channel="#frogs",
        type=EventType.PRIVMSG,
        time=NOON + timedelta(seconds=number),
        nick="bob",
        text=f"frog {number}",
    )


async def fill(data: Path) -> None:
    """Have a log, and a conversation with the browser, in files."""
    async with Database.open(data / "irc.db") as database:
        await ChatLog(database).add([said(number) for number in range(LINES)])
    async with Database.open(data / "web.db") as database:
        turn = Turn(0, NOON, ({"role": "user", "content": "hello"},))
        await Conversations(database).add("browser/1", turn)


async def turns(address: Address) -> list[Turn]:
    async with Database.open(address) as database:
        return await Conversations(database).turns("browser/1")


async def exported(folder: Path, **environment: str) -> str:
    """The whole log, as `terrarium logs export` gives it."""
    done = await terrarium("logs", "export", "--private", cwd=folder, **environment)
    assert done.status == 0, done.err
    return done.out


@pytest.mark.slow
async def test_killed_in_the_middle_it_goes_on_and_the_export_is_the_same_there_and_back(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    await fill(data)
    before, url = await exported(tmp_path), postgres_database()
    for step in (1, 3):
        async with begun("storage", "migrate", "--to", url, cwd=tmp_path) as process:
            await line_with(process.stderr, f"irc: events, step {step}")
            process.kill()
            await process.wait()
    there = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert there.status == 0, there.err
    assert "moved irc, web to PostgreSQL database" in there.out
    assert await exported(tmp_path, STORAGE_URL=url) == before
    assert await turns(PostgresSchema(url, "web")) == await turns(data / "web.db")
    async with begun(
        "storage", "migrate", "--to", "back", cwd=tmp_path, STORAGE_URL=url
    ) as process:
        await line_with(process.stderr, "irc: events, step 2")
        process.kill()
        await process.wait()
    back = await terrarium("storage", "migrate", "--to", "back", cwd=tmp_path, STORAGE_URL=url)
    assert back.status == 0, back.err
    again = await terrarium("logs", "export", "--private", "--data", "back", cwd=tmp_path)
    assert again.out == before
    assert await turns(tmp_path / "back" / "web.db") == await turns(data / "web.db")


async def test_while_something_runs_all_is_copied_and_the_last_delta_is_left(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    await fill(data)
    url = postgres_database()
    running = StatusFile(data, "irc")
    running.ready()
    copied = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert copied.status == 1
    assert "all is copied, but `terrarium run irc` (process" in copied.err
    assert "jobs, step" not in copied.err  # an empty table is not worth a line
    with hold_lock(data, "up", "terrarium up"):
        beside = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert beside.status == 1
    assert "all is copied, but `terrarium up` (process" in beside.err
    assert "stop it and run the same command again" in beside.err
    with hold_lock(data, "web", "terrarium run web"):
        beside = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert "all is copied, but `terrarium run web` (process" in beside.err
    async with Database.open(data / "irc.db") as database:
        await ChatLog(database).add([said(LINES)])
    running.mark_stopped()
    done = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert done.status == 0, done.err
    assert "irc: events, step 1\n" not in done.err  # nothing is copied twice
    assert await exported(tmp_path, STORAGE_URL=url) == await exported(tmp_path)


async def test_a_process_elsewhere_that_uses_the_database_is_noticed(tmp_path: Path) -> None:
    url = postgres_database()
    async with Database.open(PostgresSchema(url, "irc")) as database:
        await ChatLog(database).add([said(1)])
        done = await terrarium("storage", "migrate", "--to", "files", cwd=tmp_path, STORAGE_URL=url)
    assert done.status == 1
    assert "a process somewhere uses PostgreSQL database" in done.err
    done = await terrarium("storage", "migrate", "--to", "files", cwd=tmp_path, STORAGE_URL=url)
    assert done.status == 0, done.err


async def test_what_cannot_be_moved_is_told_with_what_to_do(tmp_path: Path) -> None:
    url = postgres_database()
    nothing, files, twice = await asyncio.gather(
        terrarium("storage", "migrate", "--to", url, cwd=tmp_path),
        terrarium("storage", "migrate", "--to", "elsewhere", cwd=tmp_path),
        terrarium("storage", "migrate", "--to", url, cwd=tmp_path, STORAGE_URL=url),
    )
    assert [nothing.status, files.status, twice.status] == [1, 1, 1]
    assert "there is nothing to move in data" in nothing.err
    assert "--to takes a URL: postgresql://USER@HOST/DATABASE" in files.err
    assert "everything is in PostgreSQL already" in twice.err


async def write_again(address: Address, number: int) -> None:
    """Have one more line in a log."""
    async with Database.open(address) as database:
        await ChatLog(database).add([said(number)])


@pytest.mark.parametrize("to_files", [False, True], ids=["into postgres", "into files"])
async def test_a_second_move_takes_what_was_written_since(tmp_path: Path, to_files: bool) -> None:
    url, data = postgres_database(), tmp_path / "data"
    source: Address = PostgresSchema(url, "irc") if to_files else data / "irc.db"
    await write_again(source, 0)
    to, environment = ("files", {"STORAGE_URL": url}) if to_files else (url, {})
    for number in range(1, 3):
        done = await terrarium("storage", "migrate", "--to", to, cwd=tmp_path, **environment)
        assert done.status == 0, done.err
        await write_again(source, number)
    done = await terrarium("storage", "migrate", "--to", to, cwd=tmp_path, **environment)
    assert done.status == 0, done.err
    target: Address = tmp_path / "files" / "irc.db" if to_files else PostgresSchema(url, "irc")
    async with Database.open(target) as database:
        lines = await ChatLog(database).find(Query(scope=EVERYTHING))
    assert [line.text for line in lines] == ["frog 0", "frog 1", "frog 2"]
    again = await terrarium("storage", "migrate", "--to", to, cwd=tmp_path, **environment)
    assert again.status == 0
    assert "irc: moved before, and nothing was written to it since" in again.err


async def test_there_and_back_and_there_again_loses_no_line(tmp_path: Path) -> None:
    url = postgres_database()
    await write_again(PostgresSchema(url, "irc"), 0)
    back = await terrarium("storage", "migrate", "--to", "data", cwd=tmp_path, STORAGE_URL=url)
    assert back.status == 0, back.err
    await write_again(tmp_path / "data" / "irc.db", 1)
    refused = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert refused.status == 1
    assert "has something in it already; name an empty place" in refused.err
    new = postgres_database()
    there = await terrarium("storage", "migrate", "--to", new, cwd=tmp_path)
    assert there.status == 0, there.err
    back = await terrarium("storage", "migrate", "--to", "files", cwd=tmp_path, STORAGE_URL=new)
    assert back.status == 0, back.err
    assert "move the old irc.db with -wal and -shm files out of data, then" in back.out
    assert "all files of files into data and start again" in back.out
    await write_again(tmp_path / "files" / "irc.db", 2)
    refused = await terrarium("storage", "migrate", "--to", new, "--data", "files", cwd=tmp_path)
    assert refused.status == 1
    assert "move into a new, empty place" in refused.err
    assert "moved" not in refused.out


async def test_where_both_have_changed_nothing_is_overwritten(tmp_path: Path) -> None:
    url, file = postgres_database(), tmp_path / "data" / "irc.db"
    await write_again(file, 0)
    done = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert done.status == 0, done.err
    await write_again(PostgresSchema(url, "irc"), 1)
    kept = await exported(tmp_path, STORAGE_URL=url)
    await write_again(file, 2)
    refused = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert refused.status == 1
    assert "were both written to since they were the same" in refused.err
    assert await exported(tmp_path, STORAGE_URL=url) == kept
