"""The log of a tendril in PostgreSQL, by the commands that people type."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from harnesses.logs.exporting import open_log
from storage.chat_log.event import PUBLIC, Event, EventType
from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import ChatLog, Query
from storage.settings import log_address, log_file
from terrarium.config import Config, load
from tests.kit.postgres import postgres_database


def config_of(folder: Path) -> Config:
    file = folder / "terrarium.toml"
    file.write_text(f'[storage]\nurl = "{postgres_database()}"\n')
    return load(file, folder)


async def test_with_a_url_the_log_is_in_postgresql_and_no_file_is_made(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    kind, time = EventType.PRIVMSG, datetime(2026, 3, 1, tzinfo=UTC)
    async with Database.open(log_address(config)) as database:
        line = Event(network="n", channel="#c", type=kind, time=time, nick="ada", text="frogs")
        await ChatLog(database).add([line])
    async with open_log(log_address(config)) as database:
        found = await ChatLog(database).find(Query(scope=PUBLIC))
    assert [event.text for event in found] == ["frogs"]
    assert not list(tmp_path.glob("*.db"))  # noqa: ASYNC240


def test_what_is_no_file_is_not_backed_up_as_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="pg_dump"):
        log_file(config_of(tmp_path))


async def test_a_database_of_another_locale_is_refused_with_the_command_to_make_one(
    tmp_path: Path,
) -> None:
    url = postgres_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE other TEMPLATE template0 LOCALE 'C.UTF-8'")
    other = re.sub(r"/test_\d+\?", "/other?", url)
    with pytest.raises(Unavailable, match="createdb"):
        async with Database.open(PostgresSchema(other, "irc")):
            pass
