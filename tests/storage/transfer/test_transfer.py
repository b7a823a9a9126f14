"""A store moves from files into PostgreSQL and from there into files, while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.chat_log.event import EVERYTHING, PUBLIC, Event, EventType, Identity, Place
from storage.chat_log.opt_outs import OptOuts
from storage.db.address import Address
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
from storage.transfer.errors import NotTheSame, TransferRefused
from storage.transfer.transfer import ROWS_PER_STEP, Transfer
from storage.usage.api_keys import Key, Keys
from storage.usage.token_spending import Spending, TokenSpend
from storage.usage.usage import UsageAmount
from tests.kit.postgres import PostgresStores
from tests.kit.stores import SqliteStores

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PLACE = Place("irc", "#Frogs")


def said(number: int, **values: object) -> Event:
    event = Event(
        network="irc",
        channel="#frogs",
        type=EventType.PRIVMSG,
        time=NOON + timedelta(seconds=number),
        nick="Ådå" if number % 7 == 0 else "bob",
        user="~b",
        host="host.example",
        text=f"frog {number} \x02croaks\x02 {'pond' if number % 100 == 0 else ''}",
    )
    return replace(event, **values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Places:
    """From where to where a store moves."""

    source: Address
    target: Address


@pytest.fixture(params=["into postgres", "into files"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    file, schema = SqliteStores(tmp_path)("irc"), PostgresStores(tmp_path)("irc")
    return Places(file, schema) if request.param == "into postgres" else Places(schema, file)


@asynccontextmanager
async def opened(places: Places) -> AsyncIterator[tuple[Database, Database]]:
    async with Database.open(places.source) as source, Database.open(places.target) as target:
        yield source, target


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
    await vectors.add(
        {event.id: [0.6] * DIMENSIONS for event in await log.find(Query(scope=PUBLIC))}
    )
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


async def copy(transfer: Transfer) -> int:
    """Copy all there is; return in how many steps."""
    steps = 0
    while await transfer.step() is not None:
        steps += 1
    return steps


async def everything(database: Database) -> list[object]:
    """All that the log tells, and some of the rest."""
    log, query = ChatLog(database), Query(scope=EVERYTHING, limit=20_000)
    return [
        [replace(event, text=event.text.replace("\0", "�")) for event in await log.find(query)],
        await log.stats(query, 2),  # of those who said one line each any may come first
        await log.heat_map(query),
        await log.channels(EVERYTHING),
        await log.person(EVERYTHING, "bob"),
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


async def test_all_that_is_kept_arrives_and_comes_back(places: Places, tmp_path: Path) -> None:
    async with opened(places) as (source, target):
        await fill(source, 3 * ROWS_PER_STEP)
        transfer = await Transfer.begin(source, target)
        assert await copy(transfer) > 3
        verified = await transfer.verify()
        assert verified["events"] == 3 * ROWS_PER_STEP + 3
        assert await transfer.finish() == verified
        arrived = await everything(target)
        assert arrived == await everything(source)
    empty = SqliteStores if places.source == tmp_path / "irc.db" else PostgresStores
    (tmp_path / "back").mkdir()
    async with opened(Places(places.target, empty(tmp_path / "back")("irc"))) as (target, back):
        again = await Transfer.begin(target, back)
        await copy(again)
        await again.verify()
        await again.finish()
        assert await everything(back) == arrived


async def test_what_is_written_meanwhile_arrives_too(places: Places) -> None:
    async with opened(places) as (source, target):
        await fill(source, 2 * ROWS_PER_STEP)
        log, jobs = ChatLog(source), Jobs(source)
        transfer = await Transfer.begin(source, target)
        number, step = 2 * ROWS_PER_STEP + 10, 0
        while await transfer.step() is not None:
            step += 1
            if step > 40:
                break  # each step would have something to copy for ever
            if step % 4:
                continue
            late = said(number + step, text="a late pond", nick="carol")
            early = said(step, time=NOON - timedelta(days=200, seconds=step), text="an early pond")
            (late_id, early_id) = await log.add([late, early])
            found = await log.find(Query(scope=PUBLIC, limit=3), newest=False)
            await log.remove([found[-1].id, early_id if step % 8 else late_id])
            await jobs.add("work", {"n": step}, key="once" if step % 8 else "")
            await Conversations(source).add("irc/#frogs/bob", Turn(step, NOON, ()), "irc/#frogs")
            await ChannelSettings(source).put(PLACE, "model", None if step % 8 else str(step))
        await copy(transfer)
        await log.add([said(number + 100, text="while it was compared")])
        await transfer.verify()
        await log.add([said(number + 101, text="the last pond")])
        await transfer.finish()
        assert await everything(target) == await everything(source)


async def test_a_transfer_that_was_interrupted_goes_on_where_it_was(places: Places) -> None:
    async with opened(places) as (source, target):
        await fill(source, 3 * ROWS_PER_STEP)
        whole = 0
        while True:
            transfer = await Transfer.begin(source, target)
            if await transfer.step() is None:
                break
            whole += 1
        assert whole < 60  # each step was made once
        await (await Transfer.begin(source, target)).finish()
        assert (await Transfer.begin(source, target)).is_over
        assert await everything(target) == await everything(source)


async def test_a_number_that_was_given_is_never_given_again(places: Places) -> None:
    async with opened(places) as (source, target):
        jobs = Jobs(source)
        given = [await jobs.add("work", {"n": number}) for number in range(3)]
        async with source.transaction() as db:
            await db.execute("DELETE FROM jobs")
        transfer = await Transfer.begin(source, target)
        await copy(transfer)
        await transfer.finish()
        assert await Jobs(target).add("work", {}) == given[-1] + 1


async def test_a_place_that_holds_something_else_is_refused(places: Places) -> None:
    async with opened(places) as (source, target):
        await ChatLog(target).add([said(1)])
        with pytest.raises(TransferRefused, match="has something in it already"):
            await Transfer.begin(source, target)


async def test_a_copy_that_was_given_up_is_not_taken_for_another(
    places: Places, tmp_path: Path
) -> None:
    async with opened(places) as (source, target):
        await fill(source)
        await copy(await Transfer.begin(source, target))
        (tmp_path / "other").mkdir()
        kind = PostgresStores if source.address == tmp_path / "irc.db" else SqliteStores
        async with Database.open(kind(tmp_path / "other")("irc")) as other:
            transfer = await Transfer.begin(source, other)
            await copy(transfer)
            await transfer.verify()
        with pytest.raises(TransferRefused, match="a part of another copy"):
            await Transfer.begin(source, target)


@pytest.mark.parametrize("damage", ["DELETE FROM turns", "UPDATE events SET text = 'x'"])
async def test_a_copy_that_is_not_the_same_is_told(places: Places, damage: str) -> None:
    async with opened(places) as (source, target):
        await fill(source)
        transfer = await Transfer.begin(source, target)
        await copy(transfer)
        async with target.transaction() as db:
            await db.execute(damage)
        with pytest.raises(NotTheSame, match=r"turns has 0 rows instead of 1|other contents"):
            await transfer.verify()


async def test_others_write_to_the_source_while_pieces_are_copied(places: Places) -> None:
    async with opened(places) as (source, target), Database.open(places.source) as writer:
        await fill(source, 2 * ROWS_PER_STEP)
        transfer = await Transfer.begin(source, target)
        async with ChatLog.open(writer) as log, asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(copy(transfer))
            lines = 0
            while not copying.done():
                await log.append(said(3 * ROWS_PER_STEP + lines))
                lines += 1
        await transfer.finish()
        assert lines > 0
        assert await everything(target) == await everything(source)


async def moved(source: Database, target: Database) -> Transfer:
    """Move everything, as far as it was not."""
    transfer = await Transfer.begin(source, target)
    if transfer.is_over:
        await transfer.reopen()
    if not transfer.is_over:
        await copy(transfer)
        await transfer.verify()
        await transfer.finish()
    return transfer


async def test_what_is_written_to_the_source_after_the_end_is_copied(places: Places) -> None:
    async with opened(places) as (source, target):
        await fill(source)
        for number in range(2):
            await moved(source, target)
            log = ChatLog(source)
            first, *_ = await log.find(Query(scope=PUBLIC, limit=1), newest=False)
            await log.remove([first.id])
            await log.add([said(1_000 + number, text="a forgotten pond")])
            await Conversations(source).add("irc/#frogs/bob", Turn(9, NOON, ()), "irc/#frogs")
            assert await everything(target) != await everything(source)
        transfer = await moved(source, target)
        assert transfer.is_over
        assert await everything(target) == await everything(source)
        assert not await transfer.reopen()


async def test_a_target_that_was_used_is_not_overwritten(places: Places) -> None:
    async with opened(places) as (source, target):
        await fill(source)
        transfer = await moved(source, target)
        await ChatLog(target).add([said(1_000, text="a new life")])
        assert not await transfer.reopen()  # nothing is to be copied
        await ChatLog(source).add([said(1_001)])
        kept = await everything(target)
        with pytest.raises(TransferRefused, match=r"were both written to .* a new, empty place"):
            await transfer.reopen()
        assert await everything(target) == kept


async def test_a_target_that_is_used_before_the_end_is_not_overwritten(places: Places) -> None:
    async with opened(places) as (source, target):
        await fill(source)
        transfer = await Transfer.begin(source, target)
        await copy(transfer)
        await transfer.verify()
        await ChatLog(source).add([said(1_001)])
        await transfer.require_untouched()
        await copy(transfer)
        await transfer.require_untouched()
        await ChannelSettings(target).put(PLACE, "model", "large")
        with pytest.raises(TransferRefused, match="were both written to"):
            await (await Transfer.begin(source, target)).require_untouched()


async def test_a_copy_of_something_else_is_not_overwritten(places: Places, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    kind = SqliteStores if isinstance(places.source, Path) else PostgresStores
    other = kind(tmp_path / "other")("irc")
    async with opened(places) as (source, target), Database.open(other) as unrelated:
        await fill(source)
        await moved(source, target)
        await ChatLog(unrelated).add([said(5)])
        with pytest.raises(TransferRefused, match="never a copy of the other"):
            await moved(unrelated, target)
