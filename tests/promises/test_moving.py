"""Promises about what is moved from one kind of database to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.chat_log.event import EVERYTHING
from storage.db.address import Address
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations
from storage.privacy.erasure import NamedPerson, forget, resume_erasures
from storage.transfer import copy_store
from tests.kit.forgetting import turn
from tests.kit.lines import said
from tests.kit.postgres import PostgresStores
from tests.kit.stores import SqliteStores, Stores

SECRET = "xyzzyplughplover"


async def move(source: Address, target: Address) -> None:
    async with Database.open(source) as here, Database.open(target) as there:
        await copy_store(here, there, lambda line: None)


@pytest.mark.parametrize("into_postgres", [True, False], ids=["into postgres", "into files"])
async def test_a_moved_forgetting_is_finished_there(tmp_path: Path, into_postgres: bool) -> None:
    files: Stores = SqliteStores(tmp_path)
    schemas: Stores = PostgresStores(tmp_path)
    source, target = (files, schemas) if into_postgres else (schemas, files)
    quoted = f"[2026-05-01 12:03:00] <ada> {SECRET} frobnicate number 3"
    async with Database.open(source("irc")) as here, Database.open(source("web")) as web:
        log = ChatLog(here)
        await log.add([said(f"{SECRET} frobnicate number {number}") for number in range(9)])
        line = (await log.find(Query(scope=EVERYTHING, limit=1)))[0].id
        await Conversations(web).add("browser/1", turn(line, "who was it?", quoted, "Ada."))
        async with web.exclusive():  # so that nobody else can write there
            gone = await forget(log, NamedPerson("irc", "ada"), tmp_path, "test")
            assert not gone.is_finished
    for name in ("irc", "web"):
        await move(source(name), target(name))
    assert SECRET.encode() in target.raw()
    assert await resume_erasures(target("irc"), tmp_path)
    assert SECRET.encode() not in target.raw()
