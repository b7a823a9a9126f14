"""The right to be forgotten: what goes, what stays, and that not a byte is left behind."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.chat_log import deletion, statistics
from storage.chat_log.event import EVERYTHING, Event, Place
from storage.chat_log.event_table import answers_quoting, quoted_lines
from storage.db.database import Database, other_files
from storage.db.secure_delete import secure_delete
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, Turn
from storage.memory.skills import SkillTable, TaughtSkill
from storage.privacy.erasure import Forgotten, NamedPerson, Person, count, forget
from storage.queues.pastes import Pastes
from storage.queues.reminders import Reminder, Reminders
from storage.runs.runs import Run, Runs
from storage.usage.usage import Spending, TokenSpend, UsageAmount
from tests.kit.forgetting import FILES, LINES, PERSON, fill, leftovers
from tests.kit.lines import NOON
from tests.kit.lines import said as line
from tests.kit.stores import SqliteStores, Stores

SECRET = "xyzzyplughplover"
ADA = Person("irc", "ada", "~ada", "home.example", None)


def said(text: str, minute: int = 0, **fields: Any) -> Event:
    return line(
        text, minute, **{"channel": "#frogs", "user": "~ada", "host": "home.example"} | fields
    )


async def stored(log: ChatLog, *events: Event) -> list[int]:
    return list(await asyncio.gather(*(log.append(event) for event in events)))


async def texts(log: ChatLog) -> list[str]:
    return [event.text for event in await log.find(Query(scope=EVERYTHING, limit=1_000))]


@pytest.mark.slow
async def test_not_a_byte_of_a_forgotten_person_is_left_in_any_file(tmp_path: Path) -> None:
    await fill(tmp_path)  # so much that pages fill, divide and come free
    (tmp_path / "usage.db").write_bytes(b"somebody else's")
    others = other_files(tmp_path, tmp_path / "irc.db")
    assert [path.name for path in others] == sorted([*FILES, "outbox.db"])
    assert {each.split(":")[0] for each in leftovers(tmp_path)} > {path.name for path in others}
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        gone = await forget(log, PERSON, tmp_path)
        assert gone == Forgotten(events=LINES + 1)
        assert leftovers(tmp_path) == []
        assert await texts(log) == [f"others speak of {number}" for number in range(LINES)]
        (kept,) = await Conversations(database).turns("irc/#frogs/bob")
        assert kept.messages[0]["content"] == "and now?"
    assert leftovers(tmp_path) == []
    with closing(sqlite3.connect(tmp_path / "irc.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_whose_tokens_they_were_is_forgotten_and_how_many_stays(
    tmp_path: Path, stores: Stores, log: ChatLog
) -> None:
    expense = TokenSpend(NOON.date(), f"irc/{SECRET}", f"irc/irc/{SECRET}", "answer")
    await stored(log, said("hello"))
    await Spending(log.database).add({expense: UsageAmount(1, 20, 0, 3)})
    await forget(log, ADA, tmp_path)
    spent = await Spending(log.database).by_purpose(NOON.date(), NOON.date())
    assert spent == {"answer": UsageAmount(1, 20, 0, 3)}
    assert SECRET.encode() not in stores.raw()


async def test_what_somebody_has_taught_goes_and_what_others_taught_stays_whatever_is_in_it(
    tmp_path: Path, stores: Stores, log: ChatLog
) -> None:
    await stored(log, said("the old pump squeaks when it rains"))
    table = SkillTable(log.database)
    for name, how, teacher in (
        ("own", f"Oil the {SECRET} pump.", "Ada"),
        ("other", "When the old pump squeaks when it rains, ask bob.", "bob"),
    ):
        await table.teach("irc/#frogs", TaughtSkill(name, "when it squeaks", how, teacher), NOON)
    await forget(log, ADA, tmp_path)
    assert [skill.name for skill in await table.list_taught("irc/#frogs")] == ["other"]
    assert SECRET.encode() not in stores.raw()


async def test_a_borrowed_nick_erases_nothing(tmp_path: Path, log: ChatLog) -> None:
    await stored(log, said("mine, ada's"), said("mine too", account="ada"))
    for thief in (
        replace(ADA, host="cafe.example"),
        replace(ADA, user="~mallory"),
        replace(ADA, network="oftc"),
        replace(ADA, user="", host=""),
        replace(ADA, host="cafe.example", account="mallory"),
    ):
        assert await forget(log, thief, tmp_path) == Forgotten()
    # At the same place, but not logged in: what the account has said is not theirs.
    assert await count(log, ADA) == 1
    assert len(await texts(log)) == 2


async def test_an_account_takes_along_its_nicks_and_who_keeps_the_file_any_nick_or_account(
    tmp_path: Path, log: ChatLog
) -> None:
    await stored(
        log,
        said("one", account="ada", nick="ada_", host="elsewhere.example"),
        said("two", account=None),
        said("three", account="bobby", nick="bob"),
        said("four", account=None, nick="ada_"),
        said("five", account="ada", network="oftc"),
        said("six", nick="ADA", host="a.example", account="cid"),
    )
    for person, events, left in (
        (replace(ADA, account="ada"), 2, ["three", "four", "five", "six"]),
        (NamedPerson("irc", nick="ada"), 1, ["three", "four", "five"]),
        (NamedPerson(None, account="bobby"), 1, ["four", "five"]),
    ):
        assert (await forget(log, person, tmp_path)).events == events
        assert await texts(log) == left


async def test_what_the_bot_said_in_private_goes_with_whom_it_said_it_to(
    tmp_path: Path, log: ChatLog
) -> None:
    await stored(
        log,
        said("hello, who is there", 0, host="cafe.example", channel="ada"),
        said("for the other one", 1, nick="Terra", own=True, channel="ada"),
        said("hi", 2, channel="ada"),
        said("for ada", 3, nick="Terra", own=True, channel="ada"),
    )
    gone = await forget(log, ADA, tmp_path)
    assert gone == Forgotten(events=1)
    assert await texts(log) == ["hello, who is there", "for the other one"]


@pytest.mark.parametrize(
    "room", ["ada", "ada!~ada@home.example", "~adalove", "ada!~ada@gateway/web/home"]
)
async def test_a_room_of_theirs_in_which_only_the_bot_spoke_goes_with_its_traces_and_pastes(
    room: str, tmp_path: Path, log: ChatLog
) -> None:
    host = "gateway/web/home" if "/" in room else "home.example"
    person = replace(ADA, host=host, account="AdaLove" if room.startswith("~") else None)
    notice = said("Cancelled.", 1, nick="Terra", own=True, channel=room)
    other = replace(notice, channel="bob!~bob@home.example")
    await stored(log, said("hello", 2, host=host), notice, other)
    conversation = f"irc/{room.replace('/', '%2F')}"
    await Runs(log.database).begin(Run("k", conversation, "standard", "m", NOON, private=True))
    hour = timedelta(hours=1)
    await Pastes(log.database).add(Place("irc", room), "", "A long one.", (), hour)
    gone = await forget(log, person, tmp_path)
    assert gone.events == 1
    channels = {each.place.channel for each in await log.read(statistics.channels, EVERYTHING)}
    assert channels == {"#frogs", "bob!~bob@home.example"}
    for table in ("runs", "pastes"):
        assert await log.database.fetch_all(f"SELECT * FROM {table}") == []


async def test_a_line_of_ours_goes_with_whom_it_or_the_answer_that_it_belongs_to_quotes(
    tmp_path: Path, log: ChatLog
) -> None:
    hers, bobs, asked = await stored(
        log,
        said("the key is under the pot"),
        said("no, it is not", 1, nick="bob"),
        said("Terra: where is the key?", 2, nick="bob"),
    )
    await log.add_quotes(asked, [hers, bobs])
    own = said("as ada says, the key is under the pot", 3, nick="Terra", own=True)
    other = said("Hello, bob.", 3, nick="Terra", own=True, quotes=frozenset({bobs}))
    said_unasked, *_ = await stored(
        log, replace(own, quotes=frozenset({hers})), replace(own, reply_to=asked), other
    )
    assert await log.read(quoted_lines, [said_unasked, bobs]) == {hers, bobs}
    await forget(log, ADA, tmp_path)
    assert await texts(log) == ["no, it is not", "Terra: where is the key?", "Hello, bob."]
    assert await log.read(answers_quoting, [hers]) == frozenset()


async def test_a_turn_goes_with_whoever_has_joined_it(
    tmp_path: Path, stores: Stores, log: ChatLog
) -> None:
    asked, joined = await stored(log, said("and?", nick="bob"), said(f"and {SECRET}?"))
    question = {"role": "user", "content": "and?", "name": "bob"}
    follow_up = {"role": "user", "content": f"and {SECRET}?", "name": "ada", "anchor": joined}
    await Conversations(log.database).add("room", Turn(asked, NOON, (question, follow_up)))
    await forget(log, ADA, tmp_path)
    assert await Conversations(log.database).turns("room") == []
    assert SECRET.encode() not in stores.raw()


async def test_in_private_an_answer_to_somebody_else_stays(tmp_path: Path, log: ChatLog) -> None:
    asked, _ = await stored(
        log, said("and?", nick="bob", channel="room"), said("hm", 1, channel="room")
    )
    answer = said("That is so.", 2, nick="Terra", own=True, channel="room", reply_to=asked)
    await stored(log, answer)
    await forget(log, ADA, tmp_path)
    assert await texts(log) == ["and?", "That is so."]


async def test_in_a_file_too_big_to_write_anew_it_is_overwritten(tmp_path: Path) -> None:
    files = SqliteStores(tmp_path)
    async with Database.open(files("irc")) as database, ChatLog.open(database) as log:
        ids = await stored(log, *(said(f"{SECRET} {number}") for number in range(2_000)))
        async with secure_delete(database, small=0):
            await deletion.remove(log.database, ids)
            await deletion.scrub(log.database)
        free = await database.fetch_one("PRAGMA freelist_count")
        assert free is not None
        assert free[0] > 0  # it was not written anew
        assert SECRET.encode() not in files.raw()


async def test_erasing_leaves_nothing_of_what_was_deleted_before(
    stores: Stores, log: ChatLog
) -> None:
    await deletion.remove(log.database, await stored(log, said(SECRET)))
    await deletion.scrub(log.database)
    async with secure_delete(log.database):
        pass
    assert SECRET.encode() not in stores.raw()


async def test_reminders_of_a_forgotten_person_go_with_all_that_was_said_of_them(
    tmp_path: Path, stores: Stores, log: ChatLog
) -> None:
    # A name that PostgreSQL has not itself: it knows the language Ada.
    eve = replace(ADA, nick="plugheve")
    place = Place("irc", "#frogs")
    (asked,) = await stored(log, said(".remind in 1h tea xyzzy", nick=eve.nick))
    await stored(
        log, said("plugheve: reminder: tea xyzzy", 60, nick="Terra", own=True, reply_to=asked)
    )
    reminders = Reminders(log.database)
    await reminders.add(Reminder(eve.owner, place, False, "tea xyzzy", NOON))
    await forget(log, eve, tmp_path)
    assert await reminders.all() == []
    assert await texts(log) == []
    assert b"xyzzy" not in stores.raw()
    assert b"plugheve" not in stores.raw().lower()


async def test_one_who_has_only_reminders_can_be_forgotten_too(
    tmp_path: Path, stores: Stores, log: ChatLog
) -> None:
    reminders = Reminders(log.database)
    place = Place("irc", "#frogs")
    await reminders.add(Reminder(ADA.owner, place, False, SECRET, NOON))
    assert await forget(log, ADA, tmp_path) == Forgotten()
    assert SECRET.encode() not in stores.raw()
    await reminders.add(Reminder(ADA.owner, place, False, SECRET, NOON))
    assert await forget(log, NamedPerson(None, "ADA"), tmp_path) == Forgotten()
    assert SECRET.encode() not in stores.raw()


async def test_any_number_of_people_can_be_forgotten_at_once(tmp_path: Path, log: ChatLog) -> None:
    people = [replace(ADA, nick=f"ada{number}") for number in range(6)]
    await stored(log, *(said("hello", nick=person.nick) for person in people))
    erasures = [forget(log, person, tmp_path) for person in people]
    assert await asyncio.gather(*erasures) == [Forgotten(events=1)] * len(people)
    assert await texts(log) == []
