"""A turn against a scripted model over HTTP: it always ends in an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from llm.agent.agent_loop import SPEECHLESS
from llm.agent.trace import Outcome
from llm.messages.errors import RequestRejected
from llm.messages.message import Image, Message
from llm.tools.toolbox import ImageResult, tool
from storage.usage.usage import TokenUsage
from tests.kit import one_turn
from tests.kit.one_turn import NATIVE, reading_texts, results
from tests.kit.openai_script import Answer, ScriptedOpenAI

ASKED: list[Message] = [{"role": "user", "content": "who is here?"}]
PNG = b"\x89PNG\r\n\x1a\nfrogs"
SHOWN = {"type": "image_url", "image_url": {"url": Image("image/png", PNG).url}}

run = partial(one_turn.run, options=NATIVE, asked=ASKED)


class Channel:
    """Tools that remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waiting = asyncio.Event()
        self.left = False

    @tool
    async def search(self, query: str) -> str:
        """Search the log."""
        self.asked.append(query)
        return f"found {query}"

    @tool
    async def who(self) -> list[str]:
        """Tell who is here."""
        self.asked.append("who")
        return ["ada", "bob"]

    @tool
    async def wait(self) -> str:
        """Wait for ever."""
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True
        return ""

    @tool(timeout=0.05)
    async def doze(self) -> str:
        """Wait for something that never comes."""
        await asyncio.Event().wait()
        return "done"

    @tool(effect=True)
    async def note(self, text: str) -> str:
        """Note a text."""
        self.asked.append(text)
        return "noted"

    @tool(reads=True)
    async def look(self) -> ImageResult:
        """Look at the wall."""
        return ImageResult("image: frogs", Image.from_bytes(PNG))


def choices(script: ScriptedOpenAI) -> list[str | None]:
    return [request.get("tool_choice") for request in script.requests]


def roles(messages: Sequence[Message]) -> list[str]:
    return [message["role"] for message in messages]


async def test_an_image_of_a_tool_is_shown_to_a_model_that_sees_and_not_remembered() -> None:
    async with ScriptedOpenAI() as script:
        script.calls(("look", {}), ("look", {})).say("Two frogs.")
        outcome = await run(script, Channel(), options=replace(NATIVE, accepts_images=True))
    *found, first, second = script.requests[1]["messages"][-4:]
    assert roles([*found, first, second]) == ["tool", "tool", "user", "user"]
    assert "image: frogs" in found[0]["content"]
    assert first["content"][1] == SHOWN
    assert "material" in first["content"][0]["text"]
    assert PNG.decode("latin-1") not in str(outcome.messages)
    assert roles(outcome.messages) == ["assistant", "tool", "tool", "assistant"]


async def test_a_model_that_does_not_see_is_told_that_it_is_an_image() -> None:
    async with ScriptedOpenAI() as script:
        script.call("look", {}).say("I cannot look at images.")
        await run(script, Channel())
    result = script.requests[1]["messages"][-1]
    assert result["role"] == "tool"
    assert "error: it is an image, and you cannot look at images" in result["content"]
    assert "image_url" not in str(script.requests[1])


async def test_an_answer_without_tools_ends_the_turn() -> None:
    async with ScriptedOpenAI() as script:
        script.say("Nobody.")
        assert await run(script) == Outcome(
            "Nobody.", ({"role": "assistant", "content": "Nobody."},), TokenUsage(3, 1), 1, False
        )
        assert "tools" not in script.requests[0]


async def test_results_of_tools_go_back_intact_and_lead_to_the_answer() -> None:
    channel = Channel()
    async with ScriptedOpenAI() as script:
        script.calls(("search", {"query": "ngircd"}), ("who", {})).say("Ada and Bob.")
        outcome = await run(script, channel)
        assert channel.asked == ["ngircd", "who"]
        assert choices(script) == ["auto", "auto"]
        asked, called, *answered = script.requests[1]["messages"]
    assert asked == ASKED[0]
    wanted = (
        ("call_0", "search", '{"query": "ngircd"}', "found ngircd"),
        ("call_1", "who", "{}", '["ada", "bob"]'),
    )
    assert called == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments, _ in wanted
        ],
    }
    assert answered == [
        {
            "role": "tool",
            "tool_call_id": id,
            "content": f'<tool_result tool="{name}">\n{text}\n</tool_result>',
        }
        for id, name, _, text in wanted
    ]
    assert outcome.messages[:-1] == (called, *answered)
    assert (outcome.text, outcome.iterations, outcome.forced) == ("Ada and Bob.", 2, False)
    assert outcome.usage.completion > 3


async def test_words_beside_a_call_are_part_of_the_answer_if_it_looks_nothing_up() -> None:
    channel = Channel()
    shown: list[str] = []
    async with ScriptedOpenAI() as script:
        script.answer(
            Answer("I look that up.", calls=(("search", '{"query": "warp"}'),)),
            Answer("The loom has a warp.\nI note that.", calls=(("note", '{"text": "a"}'),)),
            Answer("Noted."),
        )
        outcome = await run(script, channel, shown=shown)
        asked = script.requests[2]["messages"]
    assert outcome.text == "".join(shown) == "The loom has a warp.\nI note that.\nNoted."
    assert "The loom has a warp.\nI note that." in [each["content"] for each in asked]
    # In memory it stands once.
    assert [each["content"] for each in outcome.messages if each["role"] == "assistant"] == [
        "I look that up.",
        None,
        outcome.text,
    ]


async def test_words_that_are_said_again_after_a_call_are_given_once() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(
            Answer("I note that.", calls=(("note", '{"text": "a"}'),)),
            Answer("I note that. Done!"),
        )
        assert (await run(script, Channel())).text == "I note that. Done!"


async def test_more_calls_than_allowed_are_not_run_and_one_answer_is_forced() -> None:
    channel = Channel()
    async with ScriptedOpenAI() as script:
        script.calls(*[("search", {"query": str(number)}) for number in range(5)]).say("Enough.")
        outcome = await run(script, channel, max_tool_calls=3)
        assert channel.asked == ["0", "1", "2"]
        assert choices(script) == ["auto", "none"]
        assert len(script.requests[1]["messages"]) == 1 + 1 + 5
    assert (outcome.text, outcome.forced) == ("Enough.", True)


@pytest.mark.parametrize("limit", [1, 2, 12])
async def test_calls_that_never_end_are_ended_by_one_forced_answer(limit: int) -> None:
    async with ScriptedOpenAI() as script:
        numbers = iter(range(100))

        def rule(body: dict[str, Any]) -> Answer:
            script.reply(rule)
            if body["tool_choice"] == "none":
                return Answer("I give up.")
            return Answer(calls=(("search", json.dumps({"query": str(next(numbers))})),))

        script.reply(rule)
        outcome = await run(script, Channel(), max_iterations=limit)
        assert choices(script) == ["auto"] * (limit - 1) + ["none"]
    assert (outcome.text, outcome.forced, outcome.iterations) == ("I give up.", True, limit)


async def test_a_model_that_calls_tools_when_it_may_not_still_ends() -> None:
    channel = Channel()
    async with ScriptedOpenAI() as script:
        script.default = Answer(calls=(("who", "{}"),))
        outcome = await run(script, channel, max_iterations=2)
        assert len(script.requests) == 2
    assert channel.asked == ["who"]
    assert outcome.text == SPEECHLESS
    assert outcome.messages[-1] == {"role": "assistant", "content": SPEECHLESS}


async def test_thoughts_stay_in_memory_and_out_of_the_text_and_the_prompt() -> None:
    shown: list[str] = []
    async with ScriptedOpenAI() as script:
        script.answer(Answer(reasoning="who knows", calls=(("who", "{}"),)))
        script.answer(Answer("Ada and Bob.", reasoning="two of them"))
        outcome = await run(script, Channel(), shown=shown)
        assert "who knows" not in json.dumps(script.requests)
    assert outcome.text == "".join(shown) == "Ada and Bob."
    thoughts = [message.get("reasoning_content") for message in outcome.messages]
    assert thoughts == ["who knows", None, "two of them"]


async def test_a_tool_in_a_thought_or_in_a_text_is_not_run() -> None:
    channel = Channel()
    async with ScriptedOpenAI() as script, reading_texts(script) as url:
        script.say('<think>So: \n{"name": "who"} <tool_call>{"name": "who"}</tool_call>')
        script.say("Fine.")
        assert (await run(script, channel, api_url=url)).text == "Fine."
        script.say('Like this:\n```json\n{"name": "who"}\n```')
        assert "who" in (await run(script, channel, api_url=url)).text
    assert channel.asked == []


async def test_a_slow_tool_is_a_result() -> None:
    async with ScriptedOpenAI() as script:
        script.call("doze", {}).say("Never mind.")
        outcome = await run(script, Channel())
    assert results(outcome.messages) == ["error: no result within 0.05 seconds"]
    assert outcome.text == "Never mind."


async def test_a_turn_whose_time_is_up_still_answers() -> None:
    async with ScriptedOpenAI() as script:
        script.calls(("wait", {}), ("wait", {"x": 1})).say("Out of time.")
        outcome = await run(script, Channel(), timeout=0.2)
        assert choices(script) == ["auto", "none"]
    assert (outcome.text, outcome.forced) == ("Out of time.", True)


async def test_an_error_of_the_server_ends_the_turn() -> None:
    async with ScriptedOpenAI() as script:
        script.call("who", {}).fail(400, "no such thing").fail(400, "nor without tools")
        with pytest.raises(RequestRejected):
            await run(script, Channel())


async def test_cancelling_a_turn_stops_its_tool_and_leaves_no_task() -> None:
    channel = Channel()
    async with ScriptedOpenAI() as script:
        script.call("wait", {})
        running = asyncio.create_task(run(script, channel))
        await channel.waiting.wait()
        before = asyncio.all_tasks()
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        assert channel.left
        assert asyncio.all_tasks() <= before - {running}
