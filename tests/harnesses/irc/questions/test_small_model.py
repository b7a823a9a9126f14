"""What people get from a model of each size: quoted lines, few words, and none of the prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llm.answerers.answerers import CANNOT, COURTESIES, NOT_SAID, TAKEN_NOTE, TOO_SMALL
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import alice_in
from tests.kit.irc_tendril import ROOM
from tests.kit.openai_script import Answer, ScriptedOpenAI

TINY = {"parameters": 135_000_000}
SMALL = {"parameters": 800_000_000}
FACT = "the greenhouse pump starts at six"


@asynccontextmanager
async def scripted(
    data: Path, card: dict[str, int]
) -> AsyncIterator[tuple[IrcClient, ScriptedOpenAI]]:
    """A channel, alice in it, and a model of the size that `card` tells."""
    async with ScriptedOpenAI() as script:
        script.card = dict(card)
        script.able = {"tools": "constrained", "chooses_tools": False}
        async with alice_in(data, script.url) as (alice, _):
            yield alice, script


async def test_a_tiny_model_is_asked_only_what_neither_the_log_nor_code_answers(
    tmp_path: Path,
) -> None:
    """Which kind of question has which answer is tested in tests/llm/answerers."""
    async with scripted(tmp_path, TINY) as (alice, script):
        await alice.say(ROOM, FACT)
        await alice.say(ROOM, "I like frogs better than toads")
        answer = await alice.reply_to(".terrarium when does the greenhouse pump start?")
        assert answer.endswith(f"<a\u200blice> {FACT}")
        kinds = {
            "who said something about toads?": ("who_said", "I like frogs better than toads"),
            "where is the key to our boat house?": ("local", NOT_SAID),
            "12 * 34?": ("", "12 × 34 = 408"),
            "quick maths: 12 * 34": ("calculation", "12 × 34 = 408"),
            "translate good morning to French": ("text", TOO_SMALL),
            "I think the pump is broken again": ("statement", TAKEN_NOTE),
            "kick bob": ("order", CANNOT),
        }
        script.reads = lambda text: kinds[text][0]
        for text, (_, told) in kinds.items():
            assert told in await alice.reply_to(f".terrarium {text}")
        script.reads = lambda _: "small_talk"
        assert await alice.reply_to(".terrarium thanks a lot!") in COURTESIES.values()
        script.reads = lambda _: "missed"
        await alice.say(ROOM, ".terrarium what did I miss?")
        await alice.expect(r"Nothing was said here since|\d+ lines? by 1 person")
        assert script.requests == []
        script.reads = lambda _: "general"
        script.say(" paris")
        assert await alice.reply_to(".terrarium what is the capital of Gaul?") == "Paris."
        (request,) = script.requests
        assert request["prompt"].endswith("\n\nQuestion: what is the capital of Gaul?\nAnswer:")
        assert FACT not in request["prompt"]
        assert (request["temperature"], request["max_tokens"]) == (0, 24)
        assert "tools" not in request


async def test_a_small_model_is_shown_the_line_and_its_answer_ends_with_it(tmp_path: Path) -> None:
    async with scripted(tmp_path, SMALL) as (alice, script):
        await alice.say(ROOM, FACT)
        script.say("It starts at six.").say("Any time.")
        await alice.say(ROOM, ".terrarium when does the greenhouse pump start?")
        await alice.expect(r":alice: It starts at six\.$")
        await alice.expect(rf":\[.*\] <a\u200blice> {FACT}$")
        assert script.requests[0]["messages"][1]["content"].startswith(f"<alice> {FACT}\n\n")
        script.reads = lambda _: "small_talk"
        assert await alice.reply_to(".terrarium thanks a lot!") == "Any time."
        script.reads = lambda _: "howto"
        script.say("Boil water, which is wet. Pour it on the leaves.\n\nThen bake it. Eat it.")
        instructions = "Boil water, which is wet. Pour it on the leaves."
        assert await alice.reply_to(".terrarium how do I make tea?") == instructions


@pytest.mark.parametrize("card", [TINY, SMALL, {}])
async def test_what_looks_like_a_call_or_like_the_prompt_never_reaches_people(
    card: dict[str, int], tmp_path: Path
) -> None:
    async with scripted(tmp_path, card) as (alice, script):
        call = '{"name": "sky_color", "arguments": {"day": "today"}}'
        script.answer(*[Answer(call)] * (3 if card is TINY else 1))
        if card is TINY:
            assert await alice.reply_to(".terrarium which colour has the sky?") == TOO_SMALL
            return
        script.say("Blue it is.")
        assert await alice.reply_to(".terrarium which colour has the sky?") == "Blue it is."
        assert len(script.requests) == 2
        script.say("Oslo!\n</irc_logs>\n<irc_logs>\n[2019-07-31 14:56:18] <tom> hi")
        assert await alice.reply_to(".terrarium what is the capital of Norway?") == "Oslo!"


async def test_a_capable_model_is_shown_hundreds_of_lines(tmp_path: Path) -> None:
    async with scripted(tmp_path, {}) as (alice, script):
        script.max_model_len = 16_384
        for number in range(160):
            await alice.say(ROOM, f"line {number}")
        assert await alice.reply_to(".terrarium what is new?") == "ok"
        (request,) = script.requests
        shown = request["messages"][-1]["content"]
        assert [n for n in range(160) if f"line {n}\n" not in shown] == []
