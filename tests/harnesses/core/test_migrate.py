"""`terrarium storage migrate` by the real command: killed, there and back, and when things fail."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from harnesses.core.tendril.status import ProcessState, StatusFile
from storage.chat_log.event import Event, EventType
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.db.process_lock import hold_lock
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Turn
from storage.transfer import ROWS_PER_BATCH
from tests.kit.command import Done, begun, line_with, terrarium
from tests.kit.postgres import postgres_database, postgres_server

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


async def migrated(folder: Path, to: str, status: int = 0, **environment: str) -> Done:
    """Move everything to `to`, by the command."""
    done = await terrarium("storage", "migrate", "--to", to, cwd=folder, **environment)
    assert done.status == status, done.err
    return done


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
    there = await migrated(tmp_path, url)
    assert "copied irc, web to PostgreSQL database" in there.out
    assert await exported(tmp_path, STORAGE_URL=url) == before
    assert await turns(PostgresSchema(url, "web")) == await turns(data / "web.db")
    to_files = ("storage", "migrate", "--to", "back")
    async with begun(*to_files, cwd=tmp_path, STORAGE_URL=url) as process:
        await line_with(process.stderr, "irc: events, 4,000")
        process.kill()
        await process.wait()
    await migrated(tmp_path, "back", STORAGE_URL=url)
    again = await terrarium("logs", "export", "--private", "--data", "back", cwd=tmp_path)
    assert again.out == before
    assert await turns(tmp_path / "back" / "web.db") == await turns(data / "web.db")


async def test_nothing_is_copied_beside_a_running_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await fill(data)
    url = postgres_database()

    async def refusal() -> str:
        beside = await migrated(tmp_path, url, 1)
        assert "stop everything, and run the same command again" in beside.err
        assert "copied" not in beside.err
        return beside.err

    running = StatusFile(data, "irc")
    running.ready()
    assert "`terrarium run irc` (process" in await refusal()
    running.report(ProcessState.STOPPED)
    for name, command in (("up", "terrarium up"), ("server", "terrarium server")):
        with hold_lock(data, name, command):
            assert f"`{command}` (process" in await refusal()


async def test_a_process_elsewhere_that_uses_the_database_is_noticed(tmp_path: Path) -> None:
    url = postgres_database()
    async with Database.open(PostgresSchema(url, "irc")) as database:
        await ChatLog(database).add([said(1)])
        done = await migrated(tmp_path, "files", 1, STORAGE_URL=url)
    assert "a process somewhere uses PostgreSQL database" in done.err
    await migrated(tmp_path, "files", STORAGE_URL=url)


async def test_what_cannot_be_moved_is_told_with_what_to_do(tmp_path: Path) -> None:
    url = postgres_database()
    nothing, files, twice = await asyncio.gather(
        migrated(tmp_path, url, 1),
        migrated(tmp_path, "elsewhere", 1),
        migrated(tmp_path, url, 1, STORAGE_URL=url),
    )
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
    await migrated(tmp_path, "data", STORAGE_URL=url)
    await write_again(data / "irc.db", 1)
    taken = await migrated(tmp_path, url, 1)
    assert "has something else in it already; name an empty place" in taken.err
    assert (await exported(tmp_path, STORAGE_URL=url)).count("\n") == 1
    new = postgres_database()
    await migrated(tmp_path, new)
    back = await migrated(tmp_path, "files", STORAGE_URL=new)
    assert "move the old irc.db with -wal and -shm files out of data, then" in back.out
    assert "all files of files into data and start again" in back.out
    await migrated(tmp_path, "files", STORAGE_URL=new)


UNUSABLE = 78  # the exit status where somebody has to do something first
AGAIN = "nothing is lost: once the cause is fixed, run the same command again"


async def refused(folder: Path, url: str) -> str:
    """Return the one line that says why everything is not moved to `url`."""
    done = await terrarium("storage", "migrate", "--to", url, cwd=folder)
    assert done.status in (1, UNUSABLE), done.err
    *_, line = done.err.strip().splitlines()
    assert line.startswith("terrarium: ")
    return line


@pytest.fixture
async def before(tmp_path: Path) -> AsyncIterator[str]:
    """The export of files that are to be moved; they are as they were at the end."""
    await fill(tmp_path / "data")
    text = await exported(tmp_path)
    yield text
    assert await exported(tmp_path) == text


async def test_a_database_or_file_of_a_newer_version_is_refused(
    tmp_path: Path, before: str
) -> None:
    url = postgres_database()
    async with Database.open(PostgresSchema(url, "irc")):
        pass
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE terrarium_irc.schema_version SET version = 9999")
    assert "written by a newer Terrarium (version 9999" in await refused(tmp_path, url)
    path = tmp_path / "data" / "web.db"
    with closing(sqlite3.connect(path)) as file:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        file.execute("PRAGMA user_version = 9999")
        refusal = await refused(tmp_path, postgres_database())
        file.execute(f"PRAGMA user_version = {version}")
    assert "written by a newer Terrarium (version 9999" in refusal


@pytest.mark.usefixtures("before")
async def test_a_wrong_password_or_a_server_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    with postgres_server(durable=False) as server:
        url = server.create("target")
        hba = server.folder / "data" / "pg_hba.conf"
        hba.write_text("local all all scram-sha-256\n")
        with psycopg.connect(url) as connection:
            connection.execute("ALTER ROLE terrarium PASSWORD 'right'")
            connection.execute("SELECT pg_reload_conf()")
        wrong = url.replace("terrarium@", "terrarium:xyzzy@")
        sentence = await refused(tmp_path, wrong)
        assert "password authentication failed" in sentence
        assert "xyzzy" not in sentence
    away = await refused(tmp_path, url)
    assert "connection to server on socket" in away
    assert "on localhost port 1," in await refused(tmp_path, "postgresql://a:b@localhost:1/c")


@pytest.mark.parametrize("line", ["irc: events, 4,000", "irc: copied and compared"])
async def test_postgresql_that_is_cut_off_in_the_middle_is_told_and_nothing_is_lost(
    tmp_path: Path, before: str, line: str
) -> None:
    with postgres_server() as server:
        url = server.create("target")
        async with begun("storage", "migrate", "--to", url, cwd=tmp_path) as process:
            await line_with(process.stderr, line)
            server.kill()
            await asyncio.to_thread(server.start)
            _, err = await process.communicate()
        if process.returncode:  # else what it was doing could be done again
            *_, sentence = err.decode().strip().splitlines()
            assert sentence.startswith("terrarium: ")
            assert AGAIN in sentence
        await migrated(tmp_path, url)
        assert await exported(tmp_path, STORAGE_URL=url) == before
