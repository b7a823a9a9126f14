"""`terrarium storage migrate` when things go wrong: it says one sentence and loses nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.log import ChatLog
from tests.harnesses.core.test_migrate import exported, fill, said
from tests.kit.command import begun, line_with, terrarium
from tests.kit.postgres import PostgresServer, postgres_database, postgres_server

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


async def test_a_database_that_has_something_in_it_is_left_as_it_is(
    tmp_path: Path, before: str
) -> None:
    url = postgres_database()
    async with Database.open(PostgresSchema(url, "irc")) as database:
        await ChatLog(database).add([said(1)])
    assert "has something else in it already; name an empty place" in await refused(tmp_path, url)
    assert (await exported(tmp_path, STORAGE_URL=url)).count("\n") == 1


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
            _cut_off(server)
            _, err = await process.communicate()
        if process.returncode:  # else what it was doing could be done again
            *_, sentence = err.decode().strip().splitlines()
            assert sentence.startswith("terrarium: ")
            assert AGAIN in sentence
        done = await terrarium("storage", "migrate", "--to", url, cwd=tmp_path)
        assert done.status == 0, done.err
        assert await exported(tmp_path, STORAGE_URL=url) == before


def _cut_off(server: PostgresServer) -> None:
    server.kill()
    server.start()
