"""Reminders in a file: whose they are, and how many there may be."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.reminders import MAX_REMINDERS, Owner, Reminder, Reminders
from tests.kit.lines import NOON
from tests.kit.stores import Stores

ADA = Owner("irc", "ada", "~ada", "home.example")
TEA = Reminder(ADA, Place("irc", "#frogs"), False, "tea", NOON)


async def test_reminders_survive_a_restart_the_next_one_first(stores: Stores) -> None:
    late = replace(TEA, due=NOON + timedelta(hours=1), rule="0 9 * * *", zone="Europe/Vienna")
    async with Database.open(stores("irc")) as database:
        second, first = [await Reminders(database).add(each) for each in (late, TEA)]
    async with Database.open(stores("irc")) as database:
        kept = Reminders(database)
        assert await kept.all() == [first, second]
        assert second is not None
        assert await kept.get(second.id) == second
        assert await kept.move(second, NOON) == replace(second, due=NOON)
        assert await kept.remove(second.id)
        assert not await kept.remove(second.id)
        assert await kept.all() == [first]


async def test_a_borrowed_nick_sees_and_cancels_nothing(database: Database) -> None:
    kept = Reminders(database)
    plain = await kept.add(TEA)
    account = await kept.add(replace(TEA, owner=replace(ADA, account="ada")))
    assert plain
    assert account
    for thief in (
        replace(ADA, host="cafe.example"),
        replace(ADA, network="oftc"),
        replace(ADA, host="cafe.example", account="mallory"),
    ):
        assert await kept.for_owner(thief) == []
        assert not await kept.remove(plain.id, thief)
    assert await kept.for_owner(ADA) == [plain]
    elsewhere = Owner("irc", "ada_", "u", "cafe.example", "Ada")
    assert await kept.for_owner(elsewhere) == [account]
    assert await kept.remove(account.id, elsewhere)
    assert await kept.remove(plain.id, ADA)


async def test_forgotten_reminders_are_those_of_the_person_or_of_all_under_a_name(
    database: Database,
) -> None:
    kept = Reminders(database)
    cafe, away = replace(ADA, host="cafe.example"), replace(ADA, network="oftc")
    for owner in (ADA, replace(ADA, account="ada"), cafe, away):
        await kept.add(replace(TEA, owner=owner, place=Place(owner.network, "#frogs")))
    assert await kept.forget(ADA) == 1
    assert await kept.forget_named("irc", None, "ADA") == 1
    assert await kept.forget_named("irc", "Ada", None) == 1
    assert [each.owner for each in await kept.all()] == [away]


async def test_nobody_has_more_than_twenty_and_others_have_room_all_the_same(
    database: Database,
) -> None:
    kept = Reminders(database)
    assert all([await kept.add(TEA) for _ in range(MAX_REMINDERS)])
    assert await kept.add(TEA) is None
    assert await kept.add(replace(TEA, owner=Owner("irc", "bob", "~bob", "b.example")))
