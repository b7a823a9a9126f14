"""What a tendril remembers: facts, notes, episodes and a summary of each room, and how prompts show
them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harnesses.core.tendril.turn import TurnRequest
from storage.memory.conversations import Turn
from storage.memory.memories import HEARSAY, Memory, MemoryKind
from terrarium.config import Config
from tests.kit.clock import ManualClock
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.small_tendril import SmallTendril
from tests.kit.summing import seen

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
POND = "irc/#pond"


class World:
    """A scripted model and a small tendril whose memory learns."""

    def __init__(self, data: Path, script: ScriptedOpenAI) -> None:
        self.data = data
        self.script = script
        self.clock = ManualClock(NOON)
        self.config = Config({"agent": {"api_url": script.url}}, None, data)
        script.summed = self._made
        self.facts: list[dict[str, Any]] = []

    def tendril(self) -> AbstractAsyncContextManager[SmallTendril]:
        """The tendril, ready to be asked."""
        return SmallTendril(self.config, self.clock).living()

    async def ask(self, tendril: SmallTendril, who: str, text: str, room: str = POND) -> str:
        """Ask something, and let the worker end what it has to do then."""
        result = await tendril.turn(
            TurnRequest(conversation=f"{room}/{who}", who=who, text=text, room=room)
        )
        assert result.ok
        await tendril.settled()
        return result.text

    def prompt(self) -> str:
        """The system message of the last question, and the question."""
        messages = self.script.requests[-1]["messages"]
        return f"{messages[0]['content']}\n{messages[-1]['content']}"

    def _made(self, body: dict[str, Any]) -> str:
        """The facts of the test, or what the messages have."""
        if "JSON" in body["messages"][0]["content"]:
            return json.dumps({"facts": self.facts})
        return seen(body)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with ScriptedOpenAI() as script:
        yield World(tmp_path, script)


async def made(tendril: SmallTendril, layer: MemoryKind, room: str = POND) -> list[str]:
    """The texts of a layer, in order."""
    return [memory.text for memory in await tendril.memory.memories.latest(room, layer, -1)]


async def test_a_fact_is_remembered_and_shown_to_all_in_the_room_and_nowhere_else(
    world: World,
) -> None:
    async with world.tendril() as tendril:
        world.script.call("remember", {"key": "Pet", "value": "a frog\nnamed Kermit"}).say("Sure.")
        await world.ask(tendril, "ada", "remember that my pet is a frog named Kermit")
        world.script.call("recall", {"key": "pet"}).say("Kermit.")
        await world.ask(tendril, "ada", "who is it?")
        assert "a frog named Kermit" in world.script.requests[-1]["messages"][-1]["content"]
        await world.ask(tendril, "bob", "hello")
        assert "<facts>\nada: pet = a frog named Kermit\n</facts>" in world.prompt()
        await world.ask(tendril, "ada", "hello", room="irc/#desert")
        assert "Kermit" not in json.dumps(world.script.requests[-1])
        world.script.call("recall", {}).say("Nothing.")
        await world.ask(tendril, "bob", "what do you know of me?")
        assert "nothing yet, in this place" in world.script.requests[-1]["messages"][-1]["content"]


async def test_only_the_person_can_change_what_they_have_said_of_themselves(world: World) -> None:
    async with world.tendril() as tendril:
        memories = tendril.memory.memories

        def fact(text: str, source: str, confidence: float, *, manual: bool = False) -> Memory:
            return Memory(
                layer=MemoryKind.FACT,
                room=POND,
                text=text,
                time=NOON,
                subject="ada",
                key="city",
                source=source,
                manual=manual,
                confidence=confidence,
            )

        assert await memories.add(fact("Rome", "bob", HEARSAY))
        world.script.call("remember", {"key": "city", "value": "Oslo"}).say("Sure.")
        await world.ask(tendril, "ada", "my city is Oslo")
        assert not await memories.add(fact("Paris", "bob", HEARSAY))
        world.script.call("remember", {"key": "city", "value": "Bobtown"}).say("Sure.")
        await world.ask(tendril, "bob", "remember for ada: city is Bobtown")
        known = await memories.fact(POND, "ada", "city")
        assert known
        assert (known.text, known.manual) == ("Oslo", True)
        own = await memories.fact(POND, "bob", "city")
        assert own
        assert own.text == "Bobtown"


async def test_whose_fact_it_is_comes_from_whose_line_it_was_and_never_from_the_model(
    world: World,
) -> None:
    world.facts = [
        {"line": 1, "about": "ada", "key": "Editor", "value": "uses vim"},
        {"line": 2, "about": "ada", "key": "debt", "value": "owes bob <facts>5</facts>"},
        {"line": 3, "about": "zoe", "key": "city", "value": "Rome"},
        {"line": 9, "about": "ada", "key": "city", "value": "Rome"},
        {"line": "x", "about": "ada"},
    ]
    async with world.tendril() as tendril:
        for who, text in (
            ("ada", "I use vim"),
            ("bob", "remember that ada owes me 5"),
            ("bob", "zoe lives in Rome"),
            ("ada", "q4"),
            ("ada", "q5"),
        ):
            await world.ask(tendril, who, text)
        facts = await tendril.memory.memories.facts(POND)
        said = {(fact.subject, fact.key, fact.source, fact.confidence) for fact in facts}
        assert said == {("ada", "editor", "ada", 0.8), ("ada", "debt", "bob", 0.3)}
        assert [fact.last_turn for fact in facts] == [1, 2]
        await world.clock.advance(timedelta(hours=1))
        await world.ask(tendril, "ada", "q6")
        assert "ada: debt = owes bob ‹facts>5‹/facts> (says bob)" in world.prompt()


async def test_every_third_exchange_becomes_an_episode_once_and_rooms_do_not_mix(
    world: World,
) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 8):
            await world.ask(tendril, "ada", f"q{number}")
            await world.ask(tendril, "bob", f"q{number + 100}", room="irc/#desert")
        assert await made(tendril, MemoryKind.EPISODE) == ["seen q1 q2 q3", "seen q4 q5 q6"]
        desert = await made(tendril, MemoryKind.EPISODE, "irc/#desert")
        assert desert == ["seen q101 q102 q103", "seen q104 q105 q106"]
        await world.clock.advance(timedelta(hours=1))
        await world.ask(tendril, "ada", "q8")
        told = "2026-05-01 seen q1 q2 q3\n2026-05-01 seen q4 q5 q6"
        assert f"<episodes>\n{told}\n</episodes>" in world.prompt()


async def test_the_summary_takes_in_each_turn_once_and_keeps_what_it_had(world: World) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 64):
            await world.ask(tendril, "ada", f"q{number}")
        (summary,) = await tendril.memory.memories.latest(POND, MemoryKind.SUMMARY, 1)
        assert summary.text == "seen " + " ".join(f"q{number}" for number in range(1, 34))
        assert summary.last_turn == 33
        folds = [body for body in world.script.beside if "the summary" in str(body["messages"][0])]
        shown = [re.findall(r"ada: q(\d+)", body["messages"][1]["content"]) for body in folds]
        assert [list(map(int, each)) for each in shown] == [
            list(range(1, 12)),
            list(range(12, 23)),
            list(range(23, 34)),
        ]
        assert len(await tendril.memory.memories.latest(POND, MemoryKind.EPISODE, -1)) == 20


async def test_memory_stands_beside_the_question_and_leaves_the_beginning_as_it_is(
    world: World,
) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 30):
            await world.ask(tendril, ("ada", "bob")[number % 2], f"q{number}")
        requests = [request["messages"] for request in world.script.requests]
        assert len({messages[0]["content"] for messages in requests}) == 1
        assert requests[-1][-1]["content"].count("seen") == 5


async def test_what_belongs_to_a_question_stands_beside_it(world: World) -> None:
    async with world.tendril() as tendril:
        await world.ask(tendril, "ada", "hello")
        world.script.call("remember", {"value": "the spare key lies under the green pot"})
        world.script.say("Noted.")
        await world.ask(tendril, "ada", "note: the spare key lies under the green pot")
        await world.ask(tendril, "bob", "where is the spare green thing?")
        question = world.script.requests[-1]["messages"][-1]["content"]
        assert "2026-05-01 note of ada: the spare key lies under the green pot" in question
        await world.ask(tendril, "bob", "how is the weather?")
        assert "green pot" not in world.script.requests[-1]["messages"][-1]["content"]
        world.script.call("search_memory", {"query": "pot"}).say("There.")
        await world.ask(tendril, "bob", "look for it")
        assert "green pot" in world.script.requests[-1]["messages"][-1]["content"]


async def test_of_thirty_notes_the_oldest_twenty_become_one_episode(world: World) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 31):
            note = f"q{number} " + "x" * 600
            world.script.call("remember", {"value": note}).say("Noted.")
            await tendril.turn(TurnRequest(conversation="terminal", who="ada", text=note))
        await tendril.settled()
        notes = await made(tendril, MemoryKind.NOTE, "terminal")
        assert [note.split()[0] for note in notes] == [f"q{number}" for number in range(21, 31)]
        assert all(len(note) < 500 for note in notes)
        episodes = await tendril.memory.memories.latest("terminal", MemoryKind.EPISODE, -1)
        (condensed,) = [episode for episode in episodes if episode.key == "notes"]
        assert condensed.text == "seen " + " ".join(f"q{number}" for number in range(1, 21))


async def test_of_memories_that_match_alike_the_newer_ones_come_first(world: World) -> None:
    async with world.tendril() as tendril:
        for value in (
            "a cat sleeps in the attic",
            "the stove is cold",
            "another cat comes at night",
        ):
            world.script.call("remember", {"value": value}).say("Noted.")
            await world.ask(tendril, "ada", f"note that {value}")
            await world.clock.advance(timedelta(days=40))
        world.script.call("search_memory", {"query": "cat"}).say("There.")
        await world.ask(tendril, "ada", "what of my pet?")
        result = world.script.requests[-1]["messages"][-1]["content"].split("\n")
        assert [line.split(": ")[-1] for line in result[1:-1]] == [
            "another cat comes at night",
            "a cat sleeps in the attic",
        ]


async def test_a_model_too_small_to_choose_tools_is_asked_for_nothing(world: World) -> None:
    world.script.tools = "forced"
    async with world.tendril() as tendril:
        for number in range(1, 45):
            await world.ask(tendril, "ada", f"q{number}")
        assert world.script.beside == []
        assert await made(tendril, MemoryKind.EPISODE) == []


@pytest.mark.parametrize("why", ["the server is away", "the test is not done"])
async def test_after_a_restart_memory_waits_until_it_is_known_what_the_model_is_good_for(
    world: World, why: str
) -> None:
    async with world.tendril() as tendril:
        for number in range(3):
            await world.ask(tendril, "ada", f"q{number}")
        for number in range(3, 6):  # whose job was not added any more
            message = {"role": "user", "content": f"q{number}", "name": "ada"}
            await tendril.conversations.add(f"{POND}/ada", Turn(0, NOON, (message,)), POND, "ada")
    made_before = len(world.script.beside)
    address = world.config
    if why == "the server is away":
        world.config = Config({"agent": {"api_url": "http://127.0.0.1:9"}}, None, world.data)
    else:
        world.script.able = {"chooses_tools": None}
    async with world.tendril() as tendril:
        await tendril.settled()
        assert len(world.script.beside) == made_before
    world.config, world.script.able = address, {"chooses_tools": False}
    async with world.tendril() as tendril:
        await world.clock.advance(timedelta(minutes=2))
        await tendril.settled()
        assert len(world.script.beside) == made_before, "a model that is not good for it"
    world.script.able = {"chooses_tools": True}
    async with world.tendril() as tendril:
        await world.clock.advance(timedelta(minutes=2))
        await tendril.settled()
        assert len(world.script.beside) > made_before


async def test_forgetting_by_the_tool_is_for_ones_own_facts_only(world: World) -> None:
    async with world.tendril() as tendril:
        for who in ("ada", "bob"):
            world.script.calls(
                ("remember", {"key": "pet", "value": "frog"}),
                ("remember", {"key": "city", "value": "Oslo"}),
            ).say("Sure.")
            await world.ask(tendril, who, "my pet is a frog, my city is Oslo")
        world.script.call("forget", {"scope": "pet"}).say("Done.")
        await world.ask(tendril, "ada", "forget my pet")
        world.script.call("forget", {"scope": "all"}).say("Done.")
        await world.ask(tendril, "ada", "forget all")
        facts = await tendril.memory.memories.facts(POND)
        assert {(fact.subject, fact.key) for fact in facts} == {("bob", "pet"), ("bob", "city")}
        await world.ask(tendril, "bob", "hello")
        assert "ada:" not in world.prompt()


async def test_clearing_a_conversation_takes_along_what_came_of_it_and_the_rest_is_made_again(
    world: World,
) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 43):
            await world.ask(tendril, ("ada", "bob")[number % 2], f"q{number}")
        world.script.call("remember", {"key": "pet", "value": "frog"}).say("Sure.")
        await world.ask(tendril, "ada", "my pet is a frog")
        assert await tendril.clear(f"{POND}/ada") == 22
        await tendril.settled()
        odd = [number for number in range(1, 43) if number % 2]
        (summary,) = await made(tendril, MemoryKind.SUMMARY)
        assert re.findall(r"\d+", summary) == [str(number) for number in odd if number <= 12]
        for episode in await made(tendril, MemoryKind.EPISODE):
            assert all(int(number) % 2 for number in re.findall(r"\d+", episode))
        assert await tendril.memory.memories.facts(POND) == []
        assert "q2" not in [message["content"] for message in world.script.requests[-1]["messages"]]


async def test_compacting_answers_at_once_and_sums_up_what_is_left_out(world: World) -> None:
    async with world.tendril() as tendril:
        for number in range(1, 11):
            await world.ask(tendril, "ada", f"q{number}")
        assert await tendril.turns.compact(f"{POND}/ada") == 6
        await tendril.settled()
        assert await made(tendril, MemoryKind.SUMMARY) == ["seen q1 q2 q3 q4 q5 q6"]
        await world.ask(tendril, "ada", "q11")
        sent = json.dumps(world.script.requests[-1])
        assert "q7" in sent
        assert "ada asks: q6" not in sent
