"""Several questions at once: who joins whose run, who runs beside it, and what ends one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from harnesses.irc.tendril import IrcTendril
from storage.settings import log_path
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import Scene, scripted_room
from tests.kit.irc_tendril import ROOM
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.readings import by_cues


@asynccontextmanager
async def a_room(
    data: Path, agent: Mapping[str, Any] = MappingProxyType({}), **irc: Any
) -> AsyncIterator[tuple[ScriptedOpenAI, IrcClient, IrcClient, IrcTendril]]:
    """A scripted model and two people in the room of a tendril."""
    options = {"server": "ngircd", "irc": irc, "agent": agent}
    async with scripted_room(data, "alice", "bob", **options) as (script, tendril, both):
        alice, bob = both
        yield script, alice, bob, tendril


def words(request: dict[str, Any]) -> list[str]:
    """What people asked, as the model is sent it, without what stands before."""
    asked = [m["content"] for m in request["messages"] if m["role"] == "user"]
    return [text.rpartition("\n\n")[2] for text in asked]


async def until_pending(client: IrcClient, tendril: IrcTendril, questions: int) -> None:
    """Wait until so many questions are being answered or wait for it."""
    await client.settle()
    await until(lambda: tendril.turns.pending == questions)


async def test_lines_that_are_pasted_after_a_question_belong_to_it(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, tendril):
        script.hang("Hello.")
        await alice.say(ROOM, ".terrarium hello")
        await script.arrived(1)
        pasted = (".terrarium what is wrong here:", "def f(x):", "    return y", ".ping", "brb")
        await alice.send_raw("".join(f"PRIVMSG {ROOM} :{line}\r\n" for line in pasted).encode())
        await until_pending(alice, tendril, 2)
        await alice.expect("pong")
        script.say("y is not known.")
        script.release()
        await alice.expect("y is not known")
        asked = "alice asks: what is wrong here:\ndef f(x):\n    return y"
        assert words(script.requests[-1])[-1] == asked
        script.say("So it is.")
        await alice.ask(".terrarium and now?", "So it is")
        with closing(sqlite3.connect(tmp_path / "irc.db")) as file:
            rows = file.execute("SELECT id FROM events WHERE text IN (?, ?)", pasted[1:3])
            lines = [row[0] for row in rows]
            turns = [json.loads(row[0]) for row in file.execute("SELECT messages FROM turns")]
    assert sorted(turns[1][0]["quotes"]) == sorted(lines)


async def test_who_has_five_open_questions_is_told_what_becomes_of_the_next(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, tendril):
        script.hang("First.")
        await alice.say(ROOM, ".terrarium number 0?")
        await script.arrived(1)
        for number in range(1, 5):
            await alice.say(ROOM, f".terrarium number {number}?")
        await until_pending(alice, tendril, 5)
        await alice.say(ROOM, ".terrarium and number 5?")
        await alice.expect(r"NOTICE alice :.* 5 of your questions, so I have not taken")
        script.release()
        await alice.expect(r":alice: \(to: number 0\?\) First\.$")


async def test_a_second_question_joins_the_run_before_its_next_model_call(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, tendril):
        script.reads = by_cues(follow_up="and the time")
        script.answer(Answer(calls=(("people", "{}"),), hang=True))
        script.say("Two, and it is nine.").say("Later.")
        await alice.say(ROOM, ".terrarium how many are here?")
        await script.arrived(1)
        await alice.say(ROOM, ".terrarium and the time?")
        await until_pending(alice, tendril, 2)
        script.release()
        await alice.expect(rf"PRIVMSG {ROOM} :alice: Two, and it is nine\.$")
        second, roles = script.requests[1]["messages"], ["user", "assistant", "tool", "user"]
        assert [m["role"] for m in second[1:]] == roles
        asked = ["alice asks: how many are here?", "alice asks: and the time?"]
        assert words(script.requests[1]) == asked
        await alice.ask(".terrarium when?", rf"PRIVMSG {ROOM} :alice: Later\.$")
        third = script.requests[2]["messages"]
        assert [m["role"] for m in third[1:-1]] == [*roles, "assistant"]
        assert third[4] == second[4]


async def test_questions_have_their_turns_as_they_were_heard_logged_or_not(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, tendril):
        script.say("First.").say("Second.").say("Third.")
        with closing(sqlite3.connect(log_path(tendril.config), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing can be logged meanwhile
            for question in ("one", "two [nolog]", "three"):
                await alice.say(ROOM, f".terrarium {question}")
            await until_pending(alice, tendril, 3)
            other.execute("COMMIT")
        await alice.expect(rf"PRIVMSG {ROOM} :alice: \(to: one\) First\.$")
        await alice.expect(rf"PRIVMSG {ROOM} :alice: \(to: two \[nolog\]\) Second\.$")
        assert words(script.requests[0]) == ["alice asks: one"]
        assert "two" in words(script.requests[1])[-1]


async def test_questions_that_wait_have_a_turn_and_an_answer_each(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, tendril):
        script.hang("First.").say("Second.").say("Third.")
        await alice.say(ROOM, ".terrarium one")
        await script.arrived(1)
        await alice.say(ROOM, ".terrarium two")
        await alice.say(ROOM, ".terrarium and three?")
        await until_pending(alice, tendril, 3)
        script.release()
        for answer in (r"\(to: one\) First", r"\(to: two\) Second", "Third"):
            await alice.expect(rf":alice: {answer}\.$")
        asked = words(script.requests[1])
        assert [each.partition("alice ")[2] for each in asked] == ["asks: one", "asks: two"]
        assert len(script.requests) == 3


async def test_others_are_answered_beside_a_run_with_their_own_answer(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, bob, _):
        script.hang("Slow.").say("Quick.")
        await alice.say(ROOM, ".terrarium think hard")
        await script.arrived(1)
        await bob.ask(".terrarium be quick", rf"PRIVMSG {ROOM} :bob: Quick\.$")
        script.release()
        await bob.expect(rf"PRIVMSG {ROOM} :alice: Slow\.$")
        assert words(script.requests[1]) == ["bob asks: be quick"]
        assert "<alice> .terrarium think hard" in str(script.requests[1])


async def test_who_has_changed_nick_is_answered_by_the_new_one(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, bob, _):
        script.hang("A story.")
        await alice.say(ROOM, ".terrarium tell me a story")
        await script.arrived(1)
        await alice.send("NICK alicia")
        await bob.expect(r"NICK :?alicia")
        script.release()
        await bob.expect(rf"PRIVMSG {ROOM} :alicia: A story\.$")


@pytest.mark.parametrize("leaves", ["QUIT :bye", f"PART {ROOM}"])
async def test_who_has_left_is_answered_no_more(leaves: str, tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, bob, tendril):
        script.hang("A steam engine")
        await alice.say(ROOM, ".terrarium explain how a steam engine works")
        await script.arrived(1)
        await alice.send(leaves)
        await script.client_gone()
        script.say("Here.")
        await bob.ask(".terrarium and you?", r":bob: Here\.$")
        assert not [line for line in bob.lines if "PRIVMSG" in line and "alice:" in line]
        await until_pending(bob, tendril, 0)


async def test_stop_ends_ones_own_run_and_nothing_of_it_is_remembered(tmp_path: Path) -> None:
    async with a_room(tmp_path, admins=["carol!*@*"]) as (script, alice, bob, tendril):
        script.hang("Half of")
        await alice.say(ROOM, ".terrarium write a novel")
        await script.arrived(1)
        await alice.say(ROOM, ".terrarium a long one")
        await until_pending(alice, tendril, 2)
        await bob.ask(".stop", r"NOTICE bob :\[\S+\] There is nothing to stop\.")
        await bob.ask(".stop alice", r"NOTICE bob :\[\S+\] Only admins may stop")
        await alice.ask(".stop", rf"PRIVMSG {ROOM} :alice: Stopped\.$")
        await script.client_gone()
        script.say("Yes.")
        await alice.ask(".terrarium still there?", r":alice: Yes\.$")
        assert words(script.requests[-1]) == ["alice asks: still there?"]
        assert not any("Half of" in line for line in alice.lines)
        script.hang("Half of")
        await alice.say(ROOM, ".terrarium write another novel")
        await script.arrived(3)
        await bob.rename("carol")
        await bob.ask(".stop Alice", rf"PRIVMSG {ROOM} :carol: Stopped\.$")
        await script.client_gone()


async def test_clear_forgets_what_is_being_answered_too(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, _tendril):
        script.hang("Your secret is safe.").say("What secret?")
        await alice.say(ROOM, ".terrarium keep my secret")
        await script.arrived(1)
        await alice.ask(".clear", r"Forgotten: our conversation of 0 turns\.$")
        script.release()
        await alice.expect(r":alice: Your secret is safe\.$")
        await alice.ask(".terrarium what did I say?", r":alice: What secret\?$")
        assert words(script.requests[1]) == ["alice asks: what did I say?"]


async def test_compact_shows_the_model_the_newest_turns_only(tmp_path: Path) -> None:
    turns_only = {"max_context_messages": 0}
    async with a_room(tmp_path, agent=turns_only) as (script, alice, _, _tendril):
        await alice.ask(".compact", r"Our conversation is already short\.$")
        for number in range(6):
            await alice.ask(f".terrarium number {number}", r":alice: ok$")
        await alice.ask(".compact", r"I dropped the oldest 2 turns\.$")
        await alice.ask(".terrarium last", r":alice: ok$")
        asked = [*(f"alice asks: number {number}" for number in range(2, 6)), "alice asks: last"]
        assert words(script.requests[-1]) == asked


async def test_a_command_in_plain_words_overtakes_what_waits_for_the_model(tmp_path: Path) -> None:
    async with a_room(tmp_path) as (script, alice, _, _tendril):
        script.reads = by_cues(remind="remind me")
        script.hang("Nine").say("Ten.")
        await alice.say(ROOM, ".terrarium how many newts are there?")
        await script.arrived(1)
        await alice.say(ROOM, ".terrarium how many frogs are there?")
        await alice.say(ROOM, ".terrarium remind me in 20 minutes to feed them")
        await alice.expect(rf"PRIVMSG {ROOM} :alice: I will remind you on .* \(reminder 1\)\.$")
        await alice.ask(".terrarium what is 12 * 34?", rf"PRIVMSG {ROOM} :alice: 12 × 34 = 408$")
        script.release()
        for answer in (r"\(to: .* newts .*\) Nine", r"\(to: .* frogs .*\) Ten\."):
            await alice.expect(rf"PRIVMSG {ROOM} :alice: {answer}$")
        await alice.ask(".reminders", "feed them")
        assert len(script.requests) == 2


async def test_an_answer_that_took_minutes_names_its_question(tmp_path: Path) -> None:
    async with Scene.open(tmp_path) as it:
        it.script.hang("RAID 6.")
        await it.alice.say(ROOM, ".terrarium which RAID level is best for eight old disks here?")
        await it.script.arrived(1)
        await it.clock.advance(timedelta(minutes=2))
        it.script.release()
        await it.alice.expect(
            r":alice: \(to: which RAID level is best for eight old disks …\) RAID 6\.$"
        )
