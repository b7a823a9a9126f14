"""The tools of questions on a real network: one list for all who ask, each with their own reach."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2

from storage.queues.reminders import Reminder, Reminders
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import NOON, Scene
from tests.kit.irc_tendril import ROOM
from tests.kit.patience import PATIENCE
from tests.kit.web_site import web_site

STAFF = "#staff"
EVERYBODYS_TOOLS = {
    *("search_log", "read_log", "people", "channels"),
    *("remind", "reminders", "cancel_reminder", "schedule", "paste"),
    *("remember", "recall", "forget", "search_memory", "learn_skill", "unlearn_skill"),
    *("calculate", "convert_unit", "current_time", "days_between", "read_page"),
}


class World(Scene):
    """The room, and a second one with alice alone."""

    rooms = (STAFF,)

    async def ask(self, who: IrcClient, question: str, *calls: Any, room: str = ROOM) -> list[str]:
        """Have the model make `calls` for a question; return their results."""
        if calls:
            self.script.calls(*calls)
        self.script.say("That is all.")
        await who.say(room, f".terrarium {question}")
        await who.expect(rf"PRIVMSG \S+ :({who.nick}: )?That is all\.$")
        said = [m["content"] for m in self.script.requests[-1]["messages"] if m["role"] == "tool"]
        return ["\n".join(text.splitlines()[1:-1]) for text in said[-len(calls) :]] if calls else []

    async def reminders(self) -> list[Reminder]:
        """The reminders of all people."""
        return list(await Reminders(self.tendril.database).all())


def world(data: Path, **irc: Any) -> AbstractAsyncContextManager[World]:
    return World.open(data, irc={"channels": [ROOM, STAFF], **irc})


def tools(request: dict[str, Any]) -> dict[str, Any]:
    """The tools in a request of the model, by name."""
    return {tool["function"]["name"]: tool for tool in request["tools"]}


async def test_all_who_ask_in_a_place_have_the_same_tools_byte_for_byte(tmp_path: Path) -> None:
    async with world(tmp_path, admins=["alice!*@*"]) as it:
        await it.ask(it.alice, "hello")
        await it.ask(it.bob, "could you remind me of that and learn it?")
        await it.ask(it.alice, "what is the square root of nine, roughly?", room=STAFF)
        await it.ask(it.bob, "hello", room="Terra")
        (offered,) = {json.dumps(request["tools"]) for request in it.script.requests}
        assert set(tools(it.script.requests[0])) >= EVERYBODYS_TOOLS
        assert len(offered) // 4 < 2_400, "tokens"
        noise = ('"title":', '"additionalProperties":', '"null"', '"default": null')
        assert [each for each in noise if each in offered] == []


async def test_the_rights_count_when_a_tool_is_called(tmp_path: Path) -> None:
    async with world(tmp_path, admins=["alice!*@*"]) as it:
        lesson = ("learn_skill", {"name": "key", "when": "asked for the key", "how": "Ask bob."})
        question = "learn key: when asked for the key: Ask bob."
        [refused] = await it.ask(it.bob, question, lesson)
        assert refused == "error: not done: the person who asks you may not have that done"
        assert await it.ask(it.alice, question, lesson) == ["learned: key"]
        await it.ask(it.alice, "and here?", room="Terra")
    public, private = (it.script.requests[at]["messages"][0]["content"] for at in (0, -1))
    assert '("bob: your words")' in public
    assert '("bob: your words")' not in private
    assert all("shown as plain text: use no Markdown" in each for each in (public, private))


async def test_in_private_the_log_of_ones_own_channels_can_be_read(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        await it.alice.say(ROOM, "the barrel is full of plums")
        await it.alice.say(STAFF, "the barrel is full of rum")
        await it.alice.ask("the barrel is mine", "ok", room="Terra")
        look: tuple[Any, ...] = (
            ("search_log", {"query": "barrel"}),
            ("channels", {}),
            ("people", {"nick": "alice"}),
        )
        found, places, alice = await it.ask(it.bob, "where?", *look, room="Terra")
        assert "plums" in found
        assert "rum" not in found + alice
        assert "mine" not in found + alice
        assert STAFF not in places + alice
        assert f"alice is now in: {ROOM}" in alice
        found, places, _ = await it.ask(it.alice, "where?", *look, room="Terra")
        assert "plums" in found
        assert "rum" in found
        assert STAFF in places
        found, places, _ = await it.ask(it.alice, "where?", *look)  # others read along there
        assert "rum" not in found
        assert STAFF not in places
        await it.bob.send(f"PART {ROOM}")
        await it.bob.settle()
        found, *_ = await it.ask(it.bob, "where?", *look, room="Terra")
        assert "plums" not in found


async def test_a_long_answer_is_read_whole_from_elsewhere(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.script.say("\n".join(f"step {number}" for number in range(20)))
        await it.alice.ask(".terrarium explain", r"\(17 more lines: \.more\)$")
        await it.ask(it.alice, "thanks")  # its turn comes when the one before is remembered
        call = ("read_log", {"channel": ROOM})
        [read] = await it.ask(it.alice, "what was step 17?", call, room="Terra")
    assert "\n".join(f"  step {number}" for number in range(1, 20)) in read
    assert "more lines" not in read


async def test_who_is_here_is_told_now_and_of_one_person(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        here, gone = await it.ask(
            it.alice, "tell me of us", ("people", {}), ("people", {"nick": "carol"})
        )
        assert here == f"{ROOM}: alice, bob, Terra"
        assert gone.splitlines()[0] == "carol is now in: none of the channels"


async def test_others_who_are_here_are_reminded_and_told_by_whom(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        mine, both, absent, unnamed, again = await it.ask(
            it.alice,
            "could you nudge bob, carol and me in an hour about the seedlings, to water them?",
            ("remind", {"when": "in 2 hours", "text": "water"}),
            ("remind", {"when": "in 1 hour", "text": "the seedlings", "who": ["Bob", "alice"]}),
            ("remind", {"when": "in 1 hour", "text": "the seedlings", "who": ["carol"]}),
            ("remind", {"when": "in 1 hour", "text": "the seedlings", "who": ["Terra"]}),
            ("remind", {"when": "every hour", "text": "the seedlings", "who": ["bob"]}),
        )
        assert mine.startswith("I will remind you on Fri 2026-05-01 at 14:00 UTC")
        assert [line.partition(" on ")[0] for line in both.splitlines()] == [
            "bob: I will remind you",
            "alice: I will remind you",
        ]
        assert absent == "error: 'carol' is nobody who is here and can be reminded."
        assert unnamed == "error: not done: alice has not named Terra"
        assert "Only the person themselves" in again
        await it.bob.ask(".reminders", r"NOTICE bob :\[\S+\] 2: .*: the seedlings \(from alice\)$")
        await it.clock.asleep_until(NOON + timedelta(hours=1))
        await it.clock.advance(timedelta(hours=1))
        await it.bob.expect(rf"PRIVMSG {ROOM} :bob: reminder: the seedlings \(from alice\)$")


async def test_a_reminder_from_others_can_be_cancelled_and_goes_with_a_line(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for text in ("plums", "pears", "figs"):
            call = ("remind", {"when": "in 1 hour", "text": text, "who": ["bob"]})
            await it.ask(it.alice, f"remind bob of {text} in an hour, will you, and tell me", call)
        [enough] = await it.ask(
            it.alice, "remind bob of figs, please, in an hour, dear, and of nuts", call
        )
        assert enough == "bob: not done, you have set enough reminders for them."
        hidden = ("remind", {"when": "in 1 hour", "text": "a secret", "who": ["bob"]})
        [unlogged] = await it.ask(it.alice, "[nolog] remind bob of a secret, my dear bot", hidden)
        assert unlogged == "error: I keep no reminders for others where nothing is logged."
        await it.bob.ask(".reminders cancel 1", "Cancelled")
        assert [each.text for each in await it.reminders()] == [
            "pears (from alice)",
            "figs (from alice)",
        ]
        word = await it.alice.ask(".forget me", r"(\.forget me \w+)", room="Terra")
        await it.alice.ask(word[1], "Forgotten", room="Terra")
        assert await it.reminders() == []


async def test_a_question_is_scheduled_in_the_askers_own_words(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        when = {"when": "every monday at 9"}
        done, made_up, order = await it.ask(
            it.alice,
            "every monday at 9 ask us who has  Greenhouse duty and who would kick bob, would you?",
            ("schedule", {**when, "question": "ask us who has greenhouse duty"}),
            ("schedule", {**when, "question": "tell bob all that alice said"}),
            ("schedule", {**when, "question": "kick bob"}),
        )
        assert done.startswith("I will do that on Mon 2026-05-04 at 09:00 UTC, and again each time")
        refused = "error: not done: use a part of what they have just written, word for word"
        assert made_up == refused
        assert order.startswith("error: not done: orders are scheduled by the command")
        [kept] = await it.reminders()
        assert (kept.asks, kept.owner.nick) == (True, "alice")


async def test_whoever_speaks_through_a_relay_schedules_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, relays=["bob!*@*"]) as it:
        it.script.call(
            "schedule", {"when": "every monday at 9", "question": "sum up the week"}
        ).say("That is all.")
        await it.bob.say(ROOM, "<carol> .terrarium each monday at 9 you could sum up the week")
        await it.bob.expect("carol: That is all")
        assert "through a relay" in it.script.requests[-1]["messages"][-1]["content"]
        assert await it.reminders() == []


async def test_a_long_text_goes_behind_a_link_if_somebody_can_open_it(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        paste = ("paste", {"text": "# The unit\n\n```ini\n[Service]\n```"})
        [alone] = await it.ask(it.alice, "write the unit", paste)
        assert alone.startswith("error: the web pages do not run")
        async with web_site(tmp_path), httpx2.AsyncClient(timeout=PATIENCE) as anybody:
            [link] = await it.ask(it.alice, "write the unit", paste)
            page = await anybody.get(link)
            assert "[Service]" in page.text
            [unlogged] = await it.ask(it.alice, "write it [nolog]", paste)
            assert unlogged.startswith("error: nothing of this question may be kept")
            await it.alice.say(ROOM, "the barrel is full")
            [found] = await it.ask(it.bob, "what is full?", ("search_log", {"query": "barrel"}))
            address = found.split()[-1]
            assert "/line/" in address
            shown = await anybody.get(address, follow_redirects=True)
            assert "the barrel is full" in shown.text
