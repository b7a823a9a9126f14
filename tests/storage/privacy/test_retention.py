"""What is older than it may be goes; opting out and in."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from storage.chat_log.event import EVERYTHING, PUBLIC, Event, EventType, Identity, Place
from storage.chat_log.opt_outs import OptOutRules, OptOuts
from storage.db.database import Database
from storage.db.secure_delete import COPY_LIFETIME, remove_copies
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, Turn
from storage.memory.skills import FILES, SkillTable, TaughtSkill
from storage.privacy.erasure import NamedPerson, forget
from storage.privacy.retention import expire
from storage.queues.reminders import Owner
from storage.queues.reports import Reports
from storage.runs.runs import Run, RunEnd, Runs
from storage.settings import StorageSettings
from tests.kit.lines import NOON as NOW
from tests.kit.lines import said as line


def said(text: str, channel: str = "#frogs", days: float = 0) -> Event:
    return line(text, channel=channel, time=NOW - timedelta(days=days))


async def test_only_what_is_older_than_its_channel_allows_is_removed(log: ChatLog) -> None:
    by_channel = {"#Toads": 2, "irc/#keep": 0}
    settings = StorageSettings(retention_days=30, channel_retention_days=by_channel)
    events = [
        said(f"{channel} {days}", channel, days)
        for channel in ("#frogs", "#toads", "#keep")
        for days in (100, 29, 3, 1)
    ]
    await asyncio.gather(*(log.append(event) for event in events))
    memory = Conversations(log.database)
    for days in (100, 3):
        messages = ({"role": "user", "content": f"{days}"},)
        await memory.add("x", Turn(0, NOW - timedelta(days=days), messages))
    assert await expire(log, StorageSettings(), NOW) == 0  # by default everything stays
    assert await expire(log, settings, NOW) == 4
    assert await expire(log, settings, NOW) == 0
    left = {event.text for event in await log.find(Query(scope=EVERYTHING, limit=100))}
    turns = await memory.turns("x")
    gone = {"#frogs 100", "#toads 100", "#toads 29", "#toads 3"}
    assert left == {event.text for event in events} - gone
    assert [turn.messages[0]["content"] for turn in turns] == ["3"]


async def test_the_trace_of_a_turn_goes_with_its_question(log: ChatLog) -> None:
    settings = StorageSettings(channel_retention_days={"#frogs": 2})
    runs = Runs(log.database)
    for days in (3, 1):
        asked = said(f"{days} days ago", days=days)
        run = Run(f"{days}", "irc/#frogs/ada", "standard", "terra", asked.time)
        await runs.begin(replace(run, question_event_id=await log.append(asked)))
        await runs.end(run.key, RunEnd(asked.time, "answered"), [])
    assert await expire(log, settings, NOW) == 1
    assert [row[0] for row in await log.database.fetch_all("SELECT key FROM runs")] == ["1"]


async def test_a_report_goes_with_the_lines_of_the_place_in_which_it_was_asked_for(
    log: ChatLog,
) -> None:
    settings = StorageSettings(retention_days=2, channel_retention_days={"#keep": 0})
    reports, rooms = Reports(log.database), ("#keep", "ada!a@a.example")
    kept, gone = [
        await reports.add(Place("irc", room), Owner("irc", "ada"), room, 0, "frogs?", PUBLIC)
        for room in rooms
    ]
    assert kept
    assert gone
    soon, late = (datetime.now(UTC) + timedelta(days=days) for days in (1, 3))
    await expire(log, settings, soon)
    assert await reports.get(gone)
    await expire(log, settings, late)
    assert await reports.get(gone) is None
    assert await reports.get(kept)


async def test_what_was_taught_goes_with_the_rest_of_the_memory(log: ChatLog) -> None:
    table = SkillTable(log.database)
    await table.record_use(FILES, ["dice"], well=True)
    for name, days in (("old", 11), ("new", 9)):
        taught = TaughtSkill(name, "when", "how", "ada")
        await table.teach("irc/#frogs", taught, NOW - timedelta(days=days))
    await expire(log, StorageSettings(retention_days=10), NOW)
    assert [skill.name for skill in await table.list_taught("irc/#frogs")] == ["new"]
    assert list(await table.scores(FILES)) == ["dice"]


async def test_an_opt_out_is_of_the_account_else_of_the_whole_mask(database: Database) -> None:
    opt_outs = OptOuts(database)
    await opt_outs.add("irc", Identity("Ada[x]", "~Ada", "h.example", "AdaL"))
    await opt_outs.add("irc", Identity("Bob[x]", "~bob", "b.example"))
    opt_out_rules = await OptOuts(database).load()
    line = replace(said("hm"), user="u", host="h.example")
    bob = replace(line, nick="bob{X}", user="~Bob", host="B.example")
    for hidden in (
        replace(line, account="adal"),
        bob,
        replace(bob, account="elsewhere"),
        replace(bob, type=EventType.NICK, nick="bobby", target="bob[x]"),
        replace(line, type=EventType.KICK, nick="op", target="ADA[x]"),
        replace(line, nick="ada[x]", user="", host=""),  # imported: no more is known
    ):
        assert not opt_out_rules.keeps(hidden), hidden
    for kept in (
        line,
        replace(line, nick="ada[x]", user="~ada"),  # not logged in
        replace(line, nick="ada[x]", account="mallory"),
        replace(bob, host="elsewhere.example"),
        replace(bob, user="~mallory"),
        replace(bob, network="oftc"),
        replace(bob, own=True),
    ):
        assert opt_out_rules.keeps(kept), kept


async def test_only_whoever_opted_out_takes_it_back(database: Database) -> None:
    ada = Identity("ada", "a", "a.example", "ada")
    bob = Identity("bob", "b", "b.example")
    mallory = Identity("bob", "m", "m.example")
    opt_outs = OptOuts(database)
    await opt_outs.add("irc", ada)
    await opt_outs.add("irc", replace(ada, account="mallory"))
    assert not await opt_outs.remove("irc", replace(ada, account=None))
    await opt_outs.remove("irc", replace(ada, account="mallory"))
    assert opt_outs.opt_out_rules.hides_person("irc", ada)
    assert await opt_outs.remove("irc", replace(ada, nick="ada_", account="ADA"))
    assert opt_outs.opt_out_rules == OptOutRules()
    await opt_outs.add("irc", bob)
    await opt_outs.add("irc", mallory)
    await opt_outs.remove("irc", mallory)
    assert opt_outs.opt_out_rules.hides_person("irc", bob)
    assert not opt_outs.opt_out_rules.hides_person("irc", mallory)
    assert await opt_outs.remove("irc", replace(bob, nick="Bob"))


async def test_opt_outs_of_earlier_versions_hold_and_nobody_else_takes_them_back(
    tmp_path: Path,
) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        await database.executemany(
            "INSERT INTO unlogged VALUES ('irc', ?, ?, ?, ?)",
            [("ada", "ada", "", ""), ("", "bob", "*", "*")],
        )
        opt_outs = OptOuts(database)
        hides = (await opt_outs.load()).hides_person
        assert hides("irc", Identity("adele", "a", "a.example", "ada"))
        assert not hides("irc", Identity("ada", "m", "m.example", "mallory"))
        bob = Identity("bob", "b", "b.example")
        assert hides("irc", bob)
        assert not hides("irc", replace(bob, account="bob"))
        assert not await opt_outs.remove("irc", bob)
        assert opt_outs.opt_out_rules.hides_person("irc", bob)


def test_a_marked_line_is_not_kept() -> None:
    opt_out_rules = OptOutRules()
    assert not opt_out_rules.keeps(said("this is [NoLog] between us"))
    assert opt_out_rules.keeps(said("no log here"))


def copies_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.before-*"))


async def test_copies_that_earlier_versions_made_go_after_a_week_or_with_a_forgetting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "elsewhere" / "log.db"
    path.parent.mkdir()
    old, new = tmp_path / "web.db.before-9", path.with_name("log.db.before-9")
    for copy, days in ((old, 8), (new, 6)):
        copy.touch()
        then = time.time() - days * 86_400
        os.utime(copy, (then, then))
    remove_copies(path, tmp_path, COPY_LIFETIME)
    assert copies_in(tmp_path) == [new]
    old.touch()
    async with Database.open(path) as database, ChatLog.open(database) as log:
        await log.append(said("frogs"))
        gone = await forget(log, NamedPerson("irc", nick="ada"), tmp_path)
    assert gone.events == 1
    assert copies_in(tmp_path) == []
