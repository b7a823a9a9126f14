"""The runs of a tendril: kept for a while, without words, and gone with whom they were for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import ChatLog
from storage.memory.conversations import Conversations, Turn
from storage.privacy.erasure import NamedPerson, Person, forget
from storage.runs.reader import newest_runs, read_run, read_turns, runs_for_event
from storage.runs.runs import Effect, PartSize, Run, RunEnd, Runs, Step
from tests.kit.lines import NOON, said
from tests.kit.stores import Stores

SECRET = "xyzzyplughplover"
RUN = Run("k", "irc/#frogs/ada", "standard", "terra", NOON, model_profile="capable")
ENDED = RunEnd(NOON + timedelta(seconds=3), "answered", "", 10, 4, 2, 1, cut=True)
PARTS = (PartSize("persona", 4, 1), PartSize("question", 6, 2))
STEPS = [
    Step("model", "terra", True, 900, "1 call", 10, 4, 2, 7, "", "stop", ("echo", "tags"), PARTS),
    Step("tool", "look", False, 5, began=907, call_id="call_1"),
]


async def test_a_run_is_read_back_with_its_steps(stores: Stores, database: Database) -> None:
    runs = Runs(database)
    await runs.begin(RUN)
    [running] = await newest_runs(stores.place, 5)
    assert (running.outcome, running.ended, running.took) == ("running", None, None)
    await runs.end("k", ENDED, STEPS)
    found = await read_run(stores.place, "irc-1")
    assert found
    assert found.steps == tuple(STEPS)
    assert (found.took, found.prompt, found.cached) == (timedelta(seconds=3), 10, 4)
    assert (found.model_profile, found.cut) == ("capable", True)


async def test_the_words_of_a_run_are_those_of_its_turn_and_go_with_it(
    stores: Stores, database: Database
) -> None:
    runs, conversations = Runs(database), Conversations(database)

    async def asked(minute: int, text: str, **values: Any) -> None:
        begun = NOON + timedelta(minutes=minute)
        run = replace(RUN, key=text, started=begun, **values)
        await runs.begin(run)
        await runs.end(text, ENDED, [])
        if text != "failed":  # is not remembered
            message = {"role": "user", "content": text}
            await conversations.add(run.conversation, Turn(7, begun, (message,)))

    await asked(0, "first")
    await asked(1, "failed")
    await asked(2, "last")
    await asked(3, "alone", conversation="irc/ada", private=True)
    await asked(4, "unnamed", conversation="")
    found = {run.started.minute: run for run in await newest_runs(stores.place, 9)}
    turns = await read_turns(stores.place, found.values())
    words = {minute: turns.get(run.id, ()) for minute, run in found.items()}
    assert [words[0][0]["content"], words[2][0]["content"]] == ["first", "last"]
    assert [words[1], words[3], words[4]] == [(), (), ()]
    await conversations.clear(RUN.conversation)
    assert await read_turns(stores.place, [found[0]]) == {}


async def test_the_run_of_a_line_is_found_in_whatever_tendril(stores: Stores) -> None:
    async with Database.open(stores("irc")) as first, Database.open(stores("cron")) as second:
        await Runs(first).begin(replace(RUN, question_event_id=5))
        await Runs(first).begin(replace(RUN, key="none"))
        later = replace(RUN, key="l", started=NOON + timedelta(hours=1), question_event_id=5)
        await Runs(second).begin(later)
    assert [run.id for run in await runs_for_event(stores.place, 5)] == ["cron-1", "irc-1"]
    assert await runs_for_event(stores.place, 6) == []


async def test_an_effect_is_known_to_the_next_attempt_at_its_run_as_long_as_that_is_kept(
    database: Database,
) -> None:
    runs = Runs(database)
    assert await runs.begin(RUN) == []
    for key in ("done", "open", "undone"):
        await runs.begin_effect("k", Effect(key, "say"))
    await runs.end_effect("k", Effect("done", "say", "said"))
    await runs.drop_effect("k", "undone")
    await runs.end("k", ENDED, STEPS)
    assert await runs.begin(RUN) == [Effect("done", "say", "said"), Effect("open", "say")]
    assert await runs.begin(replace(RUN, key="other", conversation="irc/#frogs/bob")) == []
    assert await runs.clear("irc/#frogs/ada") == 1  # no effect of a run that is gone can begin
    with pytest.raises(Unavailable):
        await runs.begin_effect("k", Effect("a", "say"))
    await runs.end("k", ENDED, STEPS)
    assert await database.fetch_all("SELECT * FROM run_steps") == []


async def test_old_runs_are_removed_and_those_that_go_on_are_not(
    stores: Stores, database: Database
) -> None:
    runs = Runs(database)
    for days in (20, 15, 13):
        old = replace(RUN, key=str(days), started=NOON - timedelta(days=days))
        await runs.begin(old)
        if days != 20:
            await runs.end(old.key, ENDED, STEPS)
    await runs.expire(NOON, 14)
    rows = await database.fetch_all("SELECT key FROM runs ORDER BY started")
    assert [row[0] for row in rows] == ["20", "13"]
    assert len(await database.fetch_all("SELECT * FROM run_steps")) == len(STEPS)
    assert await runs.interrupt() == 1
    await runs.expire(NOON, 0)
    assert len(await newest_runs(stores.place, 5)) == 2


async def test_forgetting_somebody_leaves_no_byte_of_their_runs(
    tmp_path: Path, stores: Stores
) -> None:
    line = said(f"tell me of {SECRET}", channel="#frogs", user="~ada", host="home.example")
    async with (
        Database.open(stores("irc")) as database,
        ChatLog.open(database) as log,
        Database.open(stores("cron")) as other,
    ):
        anchor = await log.append(line)
        runs = Runs(database)
        mine = [
            replace(RUN, key="asked", conversation="irc/#frogs/zoe", question_event_id=anchor),
            replace(RUN, key="named", conversation="irc/#frogs/Ada"),
            replace(RUN, key="quoting", conversation="irc/#x/bob"),
        ]
        for run in (*mine, replace(RUN, key="bob", conversation="irc/#frogs/bob")):
            await runs.begin(run)
            await runs.begin_effect(run.key, Effect("e", "say"))
            await runs.end(run.key, ENDED, STEPS)
        quoting = replace(ENDED, quotes=frozenset({anchor}))
        await runs.end("quoting", quoting, STEPS)
        elsewhere = Runs(other)
        await elsewhere.begin(replace(RUN, key="cron", conversation="cron/digest"))
        await elsewhere.begin_effect("cron", Effect("e", "say"))
        await elsewhere.end_effect("cron", Effect("e", "say", f"posted: {SECRET}"))
        await elsewhere.end("cron", quoting, ())
        assert SECRET.encode() in stores.raw()
        person = Person("irc", "ada", "~ada", "home.example", None)
        await forget(log, person, tmp_path)
        kept = await database.fetch_all("SELECT key FROM runs")
        assert [row[0] for row in kept] == ["bob"]
        assert await other.fetch_all("SELECT * FROM effects") == []
        assert SECRET.encode() not in stores.raw()


async def test_who_keeps_the_file_forgets_the_runs_of_a_nick_on_any_network(
    tmp_path: Path, log: ChatLog
) -> None:
    runs = Runs(log.database)
    for key, name in (("a", "irc/ada"), ("b", "oftc/#x/ADA"), ("c", "irc/#ada/bob")):
        await runs.begin(replace(RUN, key=key, conversation=name))
    await forget(log, NamedPerson(None, nick="ada"), tmp_path)
    assert [row[0] for row in await log.database.fetch_all("SELECT key FROM runs")] == ["c"]
    assert await runs.forget((), "oftc", {"bob"}) == 0
