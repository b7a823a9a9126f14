"""Leases: one holder at a time, by the clock of the database, and none that is late may write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from storage.chat_log.event import PUBLIC
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.queues.leases import LeaseLost, Leases, Renewal
from tests.kit.lines import said
from tests.kit.stores import Stores

LONG, OVER = timedelta(minutes=5), timedelta(0)
NAMES = ("irc/libera", "irc/oftc")


@dataclass
class Two:
    """Two processes with the same database."""

    one: Leases
    other: Leases
    database: Database


@pytest.fixture
async def two(stores: Stores) -> AsyncIterator[Two]:
    async with Database.open(stores("irc")) as first, Database.open(stores("irc")) as second:
        yield Two(Leases(first, "one"), Leases(second, "other"), first)


async def test_one_of_many_has_it(stores: Stores) -> None:
    async def wins(number: int) -> bool:
        async with Database.open(stores("irc")) as database:
            return await Leases(database, f"process {number}").acquire(NAMES, LONG)

    assert sorted(await asyncio.gather(*map(wins, range(6)))) == [False] * 5 + [True]


async def test_all_or_none_are_taken(two: Two) -> None:
    assert await two.one.acquire(["irc/oftc"], LONG)
    assert not await two.other.acquire(NAMES, LONG)
    assert [lease.name for lease in await two.other.find("irc/")] == ["irc/oftc"]


async def test_one_that_has_run_out_is_the_next_ones_with_a_higher_fence(two: Two) -> None:
    assert await two.one.acquire(NAMES, OVER)
    assert await two.other.acquire(NAMES, LONG)
    assert [(each.holder, each.fence) for each in await two.one.find("irc/")] == [("other", 2)] * 2
    with pytest.raises(LeaseLost):
        await two.one.renew({}, LONG)
    assert not await two.one.acquire(NAMES, LONG)


async def test_one_that_has_run_out_is_renewed_and_one_that_is_let_go_is_taken_at_once(
    two: Two,
) -> None:
    assert await two.one.acquire(NAMES, OVER)
    assert not any(lease.is_held for lease in await two.other.find("irc/"))
    await two.one.renew({}, LONG)
    assert all(lease.is_held for lease in await two.other.find("irc/"))
    assert not await two.other.acquire(NAMES, LONG)
    await two.one.release()
    assert await two.other.acquire(NAMES, LONG)
    await two.one.release()
    assert all(lease.is_held for lease in await two.one.find("irc/"))


async def test_the_holder_tells_its_name_and_until_when_it_has_logged(two: Two) -> None:
    assert await two.one.acquire(["irc/oftc"], LONG)
    news = Renewal("Terra!t@host", timedelta(seconds=90))
    await two.one.renew({"irc/oftc": news}, LONG)
    (lease,) = await two.other.find("irc/")
    assert lease.known_as == "Terra!t@host"
    assert timedelta(seconds=90) <= lease.settled < LONG
    assert timedelta() < lease.left <= LONG
    await two.one.renew({}, OVER)  # no news leave what was told before
    (kept,) = await two.other.find("irc/")
    assert (kept.known_as, kept.is_held) == ("Terra!t@host", False)
    assert kept.settled >= timedelta(seconds=90)


async def test_who_was_replaced_writes_nothing_into_the_log(two: Two) -> None:
    async def write() -> None:
        async with ChatLog.open(two.database) as log:
            log.check = two.one.check
            await log.append(said("before"))
            assert await two.other.acquire(NAMES, LONG)
            await asyncio.wait({log.append(said("after"))})

    assert await two.one.acquire(NAMES, OVER)
    with capture_logs() as logged, pytest.raises(ExceptionGroup) as caught:
        await write()
    assert caught.group_contains(LeaseLost)
    assert [each["event"] for each in logged] == ["log.fenced"]  # the successor logs the line
    found = await ChatLog(two.database).find(Query(scope=PUBLIC))
    assert [event.text for event in found] == ["before"]
