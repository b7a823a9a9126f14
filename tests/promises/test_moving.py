"""Promises about what is moved from one kind of database to the other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.chat_log.event import Event, EventType
from storage.db.database import Database
from storage.log import ChatLog
from storage.privacy.erasure import NamedPerson, forget
from storage.transfer.transfer import Transfer
from tests.kit.postgres import PostgresStores
from tests.kit.stores import SqliteStores, Stores

SECRET = "xyzzyplughplover"


def said(text: str, nick: str) -> Event:
    time = datetime(2026, 5, 1, 12, tzinfo=UTC)
    return Event(
        network="irc", channel="#c", type=EventType.PRIVMSG, time=time, nick=nick, text=text
    )


@pytest.mark.parametrize("into_postgres", [True, False], ids=["into postgres", "into files"])
async def test_who_is_forgotten_while_a_store_is_moved_is_in_neither_place(
    tmp_path: Path, into_postgres: bool
) -> None:
    files: Stores = SqliteStores(tmp_path)
    schemas: Stores = PostgresStores(tmp_path)
    source, target = (files, schemas) if into_postgres else (schemas, files)
    async with (
        Database.open(source("irc")) as here,
        Database.open(target("irc")) as there,
    ):
        log = ChatLog(here)
        await log.add([said(f"{SECRET} {number}", "ada") for number in range(200)])
        await log.add([said(f"others speak {number}", "bob") for number in range(200)])
        transfer = await Transfer.begin(here, there)
        while await transfer.step() is not None:
            pass
        assert SECRET.encode() in target.raw()
        await forget(here, log, NamedPerson("irc", "ada"), tmp_path, "test")
        await transfer.verify()
        assert SECRET.encode() not in target.raw()
        await transfer.finish()
    assert SECRET.encode() not in source.raw()
    assert SECRET.encode() not in target.raw()
