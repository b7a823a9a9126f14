"""People get whole answers: what a limit cuts off is continued or marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llm.agent.agent_loop import CUT_MARK, SPEECHLESS, Seam
from llm.messages.errors import ContextTooLong
from llm.messages.message import Message
from tests.kit.one_turn import ASKED, FILTERED, NATIVE, World, results, run
from tests.kit.openai_script import Answer, ScriptedOpenAI

TOO_LONG = Answer("too long", status=400, code="context_length_exceeded")


def last(request: dict[str, Any], count: int) -> list[tuple[str, str]]:
    """The roles and texts of the last messages of a request."""
    return [(each["role"], each["content"]) for each in request["messages"][-count:]]


async def test_an_answer_that_is_cut_off_is_continued() -> None:
    shown: list[str] = []
    async with ScriptedOpenAI() as script:
        script.call("look", {"query": "pump"})
        script.answer(Answer("The pump starts at six. It st", finish="length"))
        script.say("six. It stops at ten.")
        outcome = await run(script, World(), options=NATIVE, shown=shown)
        assert [each["tool_choice"] for each in script.requests] == ["auto", "auto", "none"]
        (_, said), (role, told) = last(script.requests[2], 2)
        assert script.requests[2]["messages"][:-2] == script.requests[1]["messages"]
    assert said == "The pump starts at six. It st"
    assert (role, told[:23]) == ("user", "Your answer was cut off")
    assert outcome.text == "".join(shown) == "The pump starts at six. It stops at ten."
    assert outcome.messages[-1]["content"] == outcome.text
    assert (outcome.cut, outcome.iterations) == (False, 3)


async def test_an_answer_that_is_cut_off_twice_says_so() -> None:
    shown: list[str] = []
    async with ScriptedOpenAI() as script:
        script.default = Answer("and so on ", finish="length")
        outcome = await run(script, options=NATIVE, shown=shown)
        assert len(script.requests) == 2
    assert outcome.text == f"and so on{CUT_MARK}"
    assert "".join(shown).replace(" ", "") == outcome.text.replace(" ", "")
    assert outcome.messages[-1]["content"] == outcome.text
    assert outcome.cut


@pytest.mark.parametrize(
    "after", [Answer("no", status=400), Answer(""), Answer("", reasoning="hm", finish="length")]
)
async def test_an_answer_that_cannot_be_continued_says_so(after: Answer) -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer("The pump starts", finish="length")).answer(after)
        outcome = await run(script, options=NATIVE)
    assert (outcome.text, outcome.cut) == (f"The pump starts{CUT_MARK}", True)


async def test_an_answer_that_is_too_long_for_us_is_not_asked_to_go_on() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(pieces=("so on " * 20_000,)))
        outcome = await run(script, options=NATIVE)
        assert len(script.requests) == 1
    assert outcome.cut
    assert outcome.text.endswith(CUT_MARK)


async def test_what_ends_after_a_sentence_anyway_is_neither_continued_nor_marked() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer("It starts at six. It st", finish="length"))
        outcome = await run(script, options=replace(FILTERED, limit=1))
        assert len(script.requests) == 1
    assert (outcome.text, outcome.cut) == ("It starts at six.", False)


@pytest.mark.parametrize(
    ("before", "pieces", "joined"),
    [
        ("The pump starts at six. It st", ["six. It st", "ops."], "ops."),
        ("The pump", [" starts."], " starts."),
        ("a = 1\n    b = ", ["    b = 2\n"], "2\n"),
        ("It is a", ["a b"], "a b"),
        ("So on. " * 50, ["So on. " * 30, "The end."], "So on. " * 2 + "The end."),
        ("Well", [], ""),
    ],
)
async def test_a_continuation_is_joined_without_what_it_repeats(
    before: str, pieces: Sequence[str], joined: str
) -> None:
    shown: list[str] = []

    async def show(piece: str) -> None:
        shown.append(piece)

    seam = Seam(before, show)
    for piece in pieces:
        await seam.feed(piece)
    await seam.finish()
    assert seam.text == "".join(shown) == joined


async def test_a_model_that_only_thought_is_told_so_and_asked_without_a_limit() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(reasoning="two and two " * 50, finish="length")).say("Four.")
        outcome = await run(script, options=replace(NATIVE, max_tokens=9))
        assert [each.get("max_tokens") for each in script.requests] == [9, None]
        (role, said), (_, why) = last(script.requests[1], 2)
    assert (role, said) == ("assistant", "[no answer]")
    assert "Think briefly" in why
    assert (outcome.text, outcome.cut) == ("Four.", False)


@pytest.mark.parametrize(
    ("answer", "iterations"), [("", 1), ("", 12), ("  \n", 12), (Answer(reasoning="hm"), 12)]
)
async def test_an_empty_answer_is_asked_about_once(answer: str | Answer, iterations: int) -> None:
    async with ScriptedOpenAI() as script:
        script.default = Answer(answer) if isinstance(answer, str) else answer
        outcome = await run(script, options=NATIVE, max_iterations=iterations)
        assert len(script.requests) == 2
        assert "empty" in last(script.requests[1], 1)[0][1]
    assert outcome.text == SPEECHLESS


@pytest.mark.parametrize("first", [Answer(""), Answer(reasoning="I look it up", finish="length")])
async def test_a_model_that_is_asked_again_may_still_use_its_tools(first: Answer) -> None:
    world = World()
    async with ScriptedOpenAI() as script:
        script.answer(first).call("look", {"query": "pump"}).say("At six.")
        outcome = await run(script, world, options=NATIVE)
        choices = [each["tool_choice"] for each in script.requests]
        assert choices == ["auto"] * 3
        assert not any(each["content"] == "[no answer]" for each in script.requests[2]["messages"])
    assert (outcome.text, world.looked) == ("At six.", ["pump"])


async def test_a_prompt_that_is_refused_as_too_long_is_sent_again_shorter() -> None:
    asked: list[Message] = [{"role": "user", "content": f"line {n}"} for n in range(10)]

    def rule(body: dict[str, Any]) -> Answer:
        script.reply(rule)
        if len(body["messages"]) > 3:
            return TOO_LONG
        return Answer("So.")

    async with ScriptedOpenAI() as script:
        script.reply(rule)
        outcome = await run(script, options=NATIVE, asked=asked)
        assert [len(each["messages"]) for each in script.requests] == [10, 5, 3]
    assert outcome.text == "So."


async def test_a_prompt_that_gets_no_shorter_is_not_sent_again() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(TOO_LONG)
        with pytest.raises(ContextTooLong):
            await run(script, options=NATIVE, asked=ASKED[:1])
        assert len(script.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ('{"query": "frogs', "Unterminated string"),
        ('{"query": "frogs",}', "Expecting property name"),
        ('["frogs"]', "not an object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
async def test_a_model_is_shown_the_arguments_that_it_broke(arguments: str, reason: str) -> None:
    world = World()
    async with ScriptedOpenAI() as script:
        script.call("look", arguments).call("look", {"query": "frogs"}).say("Green.")
        outcome = await run(script, world, options=NATIVE)
    broken, whole = results(outcome.messages)
    assert broken.startswith("error: arguments: Invalid JSON (")
    assert reason in broken
    assert "you wrote: " + arguments[:500] in broken
    assert len(broken) < 1_200
    assert (whole, world.looked) == ("seen frogs", ["frogs"])
