"""A store is copied from one kind of database into the other, whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.chat_log import statistics
from storage.chat_log.event import EVERYTHING, Event, Identity, Place
from storage.chat_log.opt_outs import OptOuts
from storage.connection import Dialect
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, Turn
from storage.memory.memories import Memories, Memory, MemoryKind
from storage.privacy.audit_log import AuditEntry, AuditLog
from storage.queues.channel_settings import ChannelSettings
from storage.queues.jobs import Jobs
from storage.queues.outbox import Outbox
from storage.queues.reminders import Owner, Reminder, Reminders
from storage.search.models import SearchQuery
from storage.search.vectors import DIMENSIONS, VectorIndex
from storage.transfer import ROWS_PER_BATCH, TransferError, copy_store
from storage.usage.api_keys import Key, Keys
from storage.usage.usage import Spending, TokenSpend, UsageAmount
from tests.kit.lines import NOON
from tests.kit.lines import said as line
from tests.kit.postgres import PostgresStores
from tests.kit.stores import SqliteStores

PLACE = Place("irc", "#Frogs")
Pair = tuple[Database, Database]


def said(number: int, **fields: Any) -> Event:
    own: dict[str, Any] = {
        "channel": "#frogs",
        "nick": "Ådå" if number % 7 == 0 else "bob",
        "user": "~b",
        "host": "host.example",
        "text": f"frog {number} \x02croaks\x02 {'pond' if number % 100 == 0 else ''}",
    }
    return replace(line(minute=number / 60), **own | fields)


@pytest.fixture(params=[True, False], ids=["into postgres", "into files"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """A store to copy, and an empty one of the other kind."""
    file, schema = SqliteStores(tmp_path)("irc"), PostgresStores(tmp_path)("irc")
    source, target = (file, schema) if request.param else (schema, file)
    async with Database.open(source) as here, Database.open(target) as there:
        yield here, there


async def fill(database: Database, lines: int = 100) -> None:
    """Keep something of every kind."""
    log = ChatLog(database)
    await log.add([said(number) for number in range(lines)])
    own = said(lines, own=True, nick="Terra", reply_to=5, account="terra", msgid="m", text="Hm.")
    await log.add(
        [
            own,
            said(lines + 1, channel="eve", nick="eve", text="\0"),
            said(lines + 2, network="oftc", nick="zoe"),
        ]
    )
    await OptOuts(database).add("irc", Identity("carol", "~c", "c.example", "carol"))
    vectors = VectorIndex(database)
    await vectors.open()
    texts = await vectors.missing(0, 1_000)
    await vectors.add(texts, {t: [0.6] * DIMENSIONS for e in texts for t in (e.text, e.in_talk)})
    turn = Turn(3, NOON, ({"role": "user", "content": "¿frogs?"},))
    await Conversations(database).add("irc/#frogs/bob", turn, "irc/#frogs", "bob")
    await Memories(database).add(
        Memory(layer=MemoryKind.NOTE, room="irc/#frogs", text="bob likes frogs", time=NOON)
    )
    await Jobs(database, max_attempts=2).add("work", {"n": 1}, key="once", lane="frogs")
    await Outbox(database).put("once", PLACE, "A frog.")
    await Keys(database).create(Key("bob"))
    owner = Owner("irc", "bob", "~b", "host.example")
    await Reminders(database).add(Reminder(owner, PLACE, False, "the pond", NOON))
    await ChannelSettings(database).put(PLACE, "model", "small")
    entry = AuditEntry(PLACE, "bob", "set", "model", "small")
    await AuditLog(database).add(entry)
    await AuditLog(database).add(replace(entry, reason="again"))
    await Spending(database).add({TokenSpend(NOON.date(), "r", "c", "p"): UsageAmount(1, 2, 3, 4)})


async def copy(source: Database, target: Database) -> int:
    """Copy all there is; return how many rows."""
    return await copy_store(source, target, lambda line: None)


async def everything(database: Database) -> list[object]:
    """All that the log tells, and some of the rest."""
    log, query = ChatLog(database), Query(scope=EVERYTHING, limit=20_000)
    return [
        [replace(event, text=event.text.replace("\0", "�")) for event in await log.find(query)],
        # Of those who said one line each any may come first.
        await log.read(statistics.stats, query, 2),
        await log.read(statistics.heat_map, query),
        await log.read(statistics.channels, EVERYTHING),
        await log.read(statistics.person, EVERYTHING, "bob"),
        [hit.event.id for hit in (await log.search(SearchQuery(text="pond", within=query))).hits],
        [hit.event.id for hit in (await log.search(SearchQuery(text="*roak*", within=query))).hits],
        await OptOuts(database).load(),
        await Conversations(database).turns("irc/#frogs/bob"),
        await Memories(database).latest("irc/#frogs", MemoryKind.NOTE),
        await Jobs(database).all(),
        await Outbox(database).list_unsent(),
        await Keys(database).list_all(),
        await Reminders(database).all(),
        await ChannelSettings(database).all(),
        await AuditLog(database).latest(),
    ]


async def test_all_that_is_kept_arrives_and_comes_back(pair: Pair, tmp_path: Path) -> None:
    source, target = pair
    await fill(source, 3 * ROWS_PER_BATCH)
    copied = await copy(source, target)
    assert copied > 3 * ROWS_PER_BATCH + 3
    assert await copy(source, target) == copied  # again, which changes nothing
    arrived = await everything(target)
    assert arrived == await everything(source)
    empty = SqliteStores if source.dialect is Dialect.SQLITE else PostgresStores
    (tmp_path / "back").mkdir()
    async with Database.open(empty(tmp_path / "back")("irc")) as back:
        assert await copy(target, back) == copied
        assert await everything(back) == arrived


async def test_a_copy_that_is_interrupted_leaves_nothing_and_begins_again(pair: Pair) -> None:
    source, target = pair
    await fill(source, 3 * ROWS_PER_BATCH)
    has_begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def report(line: str) -> None:
        if line.startswith("events, "):
            loop.call_soon_threadsafe(has_begun.set)

    copying = asyncio.create_task(copy_store(source, target, report))
    await has_begun.wait()
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying
    assert await ChatLog(target).read(statistics.channels, EVERYTHING) == []
    await copy(source, target)
    assert await everything(target) == await everything(source)


async def test_a_number_that_was_given_is_never_given_again(pair: Pair) -> None:
    source, target = pair
    jobs = Jobs(source)
    given = [await jobs.add("work", {"n": number}) for number in range(3)]
    await source.execute("DELETE FROM jobs")
    await copy(source, target)
    assert await Jobs(target).add("work", {}) == given[-1] + 1


@pytest.mark.parametrize("is_copy", [True, False], ids=["an older copy", "another store"])
async def test_a_place_that_holds_something_else_is_refused(pair: Pair, is_copy: bool) -> None:
    source, target = pair
    await fill(source)
    if is_copy:
        await copy(source, target)
        await ChannelSettings(source).put(PLACE, "model", "large")
    else:
        await ChatLog(target).add([said(1)])
    kept = await everything(target)
    with pytest.raises(TransferError, match="has something else in it already"):
        await copy(source, target)
    assert await everything(target) == kept


_DAMAGE = {
    Dialect.SQLITE: "CREATE TRIGGER lose AFTER INSERT ON turns BEGIN DELETE FROM turns; END",
    Dialect.POSTGRES: "CREATE RULE lose AS ON INSERT TO turns DO ALSO DELETE FROM turns",
}


async def test_a_copy_that_is_not_the_same_is_told_and_not_kept(pair: Pair) -> None:
    source, target = pair
    await fill(source)
    await target.execute(_DAMAGE[target.dialect])
    with pytest.raises(TransferError, match="turns has 0 rows instead of 1"):
        await copy(source, target)
    assert await ChatLog(target).read(statistics.channels, EVERYTHING) == []
