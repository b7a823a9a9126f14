"""What is not to be kept is not kept: no answer, no turn, no trace, no name in the process log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.irc.requests import without_key
from storage.runs.reader import newest_runs
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import NOBODY, Scene, alice_in
from tests.kit.irc_tendril import ROOM
from tests.kit.openai_script import Answer, ScriptedOpenAI

SECRET = "xyzzyplughplover"
LONG = "\n".join(f"line {number} {SECRET}" for number in range(30))
KEPT = ("events", "pastes", "turns", "conversations", "memories", "runs", "effects", "spending")


def rows(data: Path) -> Iterator[str]:
    """Every row of the tables in which something may be kept of a question."""
    with closing(connect(data / "irc.db")) as file:
        for table in KEPT:
            for row in file.execute(f"SELECT * FROM {table}"):
                yield f"{table}: {row}"


async def ask(alice: IrcClient, words: str, room: str = ROOM) -> None:
    """Ask, and wait for the last line of the long answer."""
    await alice.say(room, f".terrarium {words}")
    await alice.expect(r"\(\d+ more lines.*\)")


@pytest.mark.parametrize("how", ["marked", "opted out", "logging off"])
async def test_the_answer_to_an_unlogged_question_is_not_kept(how: str, tmp_path: Path) -> None:
    tables: dict[str, Any] = {}
    if how == "logging off":
        tables["irc"] = {"channel": {ROOM: {"logging": False}}}
    mark = "[nolog] " if how == "marked" else ""
    async with ScriptedOpenAI() as script:
        script.default = Answer(LONG)
        with capture_logs() as log:
            async with alice_in(tmp_path, script.url, **tables) as (alice, _):
                if how == "opted out":
                    await alice.say(ROOM, ".nolog")
                    await alice.expect("NOTICE")
                await ask(alice, f"{mark}tell me about {SECRET}")
                assert alice.lines[-1].endswith("(27 more lines; not kept)")
                await alice.say(ROOM, f".more {mark}".strip())
                await alice.expect("There is no more")
                await ask(alice, f"{mark}and now?")
                assert SECRET not in str(script.requests[-1])
    kept = [row for row in rows(tmp_path) if "alice" in row or SECRET in row]
    if how != "logging off":  # that they came is logged
        kept = [row for row in kept if "'JOIN'" not in row and "'QUIT'" not in row]
    assert kept == []
    assert await newest_runs(tmp_path, 10) == []
    assert not [entry for entry in log if "alice" in str(entry)]


async def test_in_no_process_log_is_what_people_wrote_or_who_has_spoken_in_private(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script:
        script.default = Answer(LONG)
        with capture_logs() as log:
            async with alice_in(tmp_path, script.url) as (alice, _):
                await ask(alice, f"tell me about {SECRET}", "Terra")
                assert alice.lines[-1].endswith("(27 more lines: .more)")
                in_private = list(log)
                await alice.say(ROOM, f"my word is {SECRET}")
                await ask(alice, f"and about {SECRET}?")
                await alice.say(ROOM, f".search {SECRET}")
                await alice.expect(rf"<.*> my word is {SECRET}")
    done = [entry["conversation"] for entry in log if entry["event"] == "turn.done"]
    assert (done[0], len(done)) == ("private", 2)
    assert [entry for entry in in_private if "alice" in str(entry)] == []
    assert [entry for entry in log if SECRET in str(entry)] == []


async def test_nothing_is_remembered_of_a_question_that_a_stop_interrupts(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.hang("It is")
        async with alice_in(tmp_path, script.url) as (alice, tendril):
            await alice.say(ROOM, f".terrarium what of {SECRET}?")
            await script.arrived()
            assert tendril.turns.pending == 1
        script.release()
    with closing(connect(tmp_path / "irc.db")) as file:
        assert file.execute("SELECT count(*) FROM turns").fetchone() == (0,)


async def test_the_key_of_a_channel_is_not_logged(tmp_path: Path) -> None:
    tables = {"irc": {"admins": "*!*@*"}}
    async with alice_in(tmp_path, NOBODY, **tables) as (alice, tendril):
        await alice.say(ROOM, f".join #closed {SECRET}")
        await alice.expect("I am joining #closed")
        await alice.send(f"MODE {ROOM} +k {SECRET}")
        await alice.settle()
        await alice.say(ROOM, "after")
        await alice.ping()
        await tendril.services.log.flush()
        with closing(connect(tmp_path / "irc.db")) as file:
            found = [str(row) for row in file.execute("SELECT * FROM events")]
    assert any("after" in row for row in found)
    assert [row for row in found if SECRET in row] == []


def test_no_key_is_in_a_change_of_modes_wherever_it_stands() -> None:
    for modes in (f"+k {SECRET}", f"+ok alice {SECRET}", f"-k+l {SECRET} 5", f"+lk 5 {SECRET}"):
        assert SECRET not in without_key(modes)
    assert without_key("+ov alice bob") == "+ov alice bob"
    assert without_key("") == ""


async def test_after_nolog_the_model_is_shown_no_answers_to_that_person(tmp_path: Path) -> None:
    async with Scene.open(tmp_path) as it:
        it.script.say("Your dog is Rex.").say("Nothing.")
        await it.alice.say(ROOM, ".terrarium what is my dog called?")
        await it.alice.expect("Your dog is Rex")
        await it.bob.say(ROOM, ".terrarium what is new?")
        await it.bob.expect("bob: Nothing")
        assert "Rex" in str(it.script.requests[-1])
        await it.alice.say(ROOM, ".nolog")
        await it.alice.expect("NOTICE alice :.*I no longer store what you say")
        it.script.call("search_log", {"query": "dog Rex"}).say("Nothing at all.")
        await it.bob.say(ROOM, ".terrarium and now, what is new?")
        await it.bob.expect("bob: Nothing at all")
        for request in it.script.requests[-2:]:
            assert "Your dog" not in str(request)
