"""`terrarium storage migrate`, by the real command: killed, beside a bot, there and back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harnesses.core.tendril.status import StatusFile
from storage.chat_log.event import Event, EventType
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.db.process_lock import hold_lock
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Turn
from storage.transfer import ROWS_PER_BATCH
from tests.kit.command import begun, line_with, terrarium
from tests.kit.postgres import postgres_database

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LINES = 4 * ROWS_PER_BATCH


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


async def test_killed_in_the_middle_it_begins_again_and_the_export_is_the_same_there_and_back(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    await fill(data)
    before, url = await exported(tmp_path), postgres_database()
    for line in ("irc: channels, ", "irc: events, 4,000", "irc: copied", "web: turns, "):
        async with begun("storage", "migrate", "--to", url, cwd=tmp_path) as process:
            await line_with(process.stderr, line)
            process.kill()
            await process.wait()
    there = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert there.status == 0, there.err
    assert "copied irc, web to PostgreSQL database" in there.out
    assert await exported(tmp_path, STORAGE_URL=url) == before
    assert await turns(PostgresSchema(url, "web")) == await turns(data / "web.db")
    async with begun(
        "storage", "migrate", "--to", "back", cwd=tmp_path, STORAGE_URL=url
    ) as process:
        await line_with(process.stderr, "irc: events, 4,000")
        process.kill()
        await process.wait()
    back = await terrarium("storage", "migrate", "--to", "back", cwd=tmp_path, STORAGE_URL=url)
    assert back.status == 0, back.err
    again = await terrarium("logs", "export", "--private", "--data", "back", cwd=tmp_path)
    assert again.out == before
    assert await turns(tmp_path / "back" / "web.db") == await turns(data / "web.db")


async def test_nothing_is_copied_beside_a_running_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await fill(data)
    url = postgres_database()

    async def refusal() -> str:
        beside = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
        assert beside.status == 1
        assert "stop everything, and run the same command again" in beside.err
        assert "copied" not in beside.err
        return beside.err

    running = StatusFile(data, "irc")
    running.ready()
    assert "`terrarium run irc` (process" in await refusal()
    running.mark_stopped()
    for name, command in (("up", "terrarium up"), ("server", "terrarium server")):
        with hold_lock(data, name, command):
            assert f"`{command}` (process" in await refusal()


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
    assert "there is nothing to copy in data" in nothing.err
    assert "--to takes a URL: postgresql://USER@HOST/DATABASE" in files.err
    assert "everything is in PostgreSQL already" in twice.err


async def write_again(address: Address, number: int) -> None:
    """Have one more line in a log."""
    async with Database.open(address) as database:
        await ChatLog(database).add([said(number)])


async def test_there_and_back_and_there_again_overwrites_nothing(tmp_path: Path) -> None:
    url, data = postgres_database(), tmp_path / "data"
    await write_again(PostgresSchema(url, "irc"), 0)
    back = await terrarium("storage", "migrate", "--to", "data", cwd=tmp_path, STORAGE_URL=url)
    assert back.status == 0, back.err
    await write_again(data / "irc.db", 1)
    refused = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
    assert refused.status == 1
    assert "has something else in it already; name an empty place" in refused.err
    new = postgres_database()
    there = await terrarium("storage", "migrate", "--to", new, cwd=tmp_path)
    assert there.status == 0, there.err
    back = await terrarium("storage", "migrate", "--to", "files", cwd=tmp_path, STORAGE_URL=new)
    assert back.status == 0, back.err
    assert "move the old irc.db with -wal and -shm files out of data, then" in back.out
    assert "all files of files into data and start again" in back.out
    again = await terrarium("storage", "migrate", "--to", "files", cwd=tmp_path, STORAGE_URL=new)
    assert again.status == 0, again.err
