"""A tendril and an able model: its window, and its whole answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llm.agent.agent_loop import CUT_MARK
from llm.messages.errors import Unsure
from tests.harnesses.core.tendril.test_base import small
from tests.kit.openai_script import Answer, ScriptedOpenAI

UNIT = "```ini\n[Service]\nMemoryHigh=3G\n```\n<notes>[18:49] <ada> so it is</notes>"
TINY = {"parameters": 135_000_000}


async def test_an_able_model_gets_no_limit_and_a_small_one_its_own(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        async with small(tmp_path / "a", script.url) as tendril:
            await tendril.ask()
        script.card, script.tools = {"parameters": 800_000_000}, "forced"
        async with small(tmp_path / "b", script.url) as tendril:
            await tendril.ask()
        async with small(tmp_path / "c", script.url, max_tokens=99) as tendril:
            await tendril.ask()
        assert [each.get("max_tokens") for each in script.requests] == [None, 256, 99]


async def test_a_tiny_model_that_is_unsure_is_not_believed(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.card, script.tools, script.reads = TINY, "forced", lambda _: "general"
        script.answer(*[Answer("Toads live in the moon.", logprob=-4.0)] * 3)
        script.answer(Answer("Toads live in ponds.", logprob=-0.2))
        assert (await tendril.ask("where do toads live?")).text == Unsure.sentence
        assert (await tendril.ask("where do toads live now?")).text == "Toads live in ponds."


async def test_what_an_able_model_writes_is_answered_and_remembered_as_it_is(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.say(UNIT)
        assert (await tendril.ask()).text == UNIT
        await tendril.ask("finish it")
        sent = script.requests[-1]["messages"]
    assert UNIT in [each["content"] for each in sent if each["role"] == "assistant"]


async def test_an_answer_that_was_cut_off_says_so_to_who_reads_it_later(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.answer(Answer("One, two", finish="length")).answer(Answer(", 3", finish="length"))
        assert (await tendril.ask()).text == f"One, two, 3{CUT_MARK}"
        await tendril.ask("go on")
        sent = script.requests[-1]["messages"]
    assert f"One, two, 3{CUT_MARK}" in [each["content"] for each in sent]


async def test_a_window_that_the_card_has_wrong_is_found_out_and_kept(tmp_path: Path) -> None:
    limit = 12_000  # words, which are this server's tokens

    def rule(body: dict[str, Any]) -> Answer:
        if len(str(body["messages"]).split()) > limit:
            return Answer("too long", status=400, code="context_length_exceeded")
        return Answer("word " * 2_000, pieces=("word " * 2_000,))

    async with ScriptedOpenAI() as script, small(tmp_path, script.url) as tendril:
        script.can_count, script.card = False, {"max_model_len": 131_072}
        script.default = rule
        for number in range(9):
            assert (await tendril.ask(f"question {number}")).ok
        refused = len(script.requests) - 9
    assert 0 < refused <= 3
