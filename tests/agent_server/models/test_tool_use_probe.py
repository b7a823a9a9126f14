"""The model card: how large the model is, how fast it reads, whether it chooses tools well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_server.models.capabilities import TEST_CASES, TEST_TOOLS, PromptSpeed
from tests.kit.agent_server import EngineAddress, agent_client, agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE

pytest_plugins = ("tests.kit.engine",)

CARD = "/v1/models/terra"
NEEDED = dict(TEST_CASES)
"""The tool that each question of the test needs."""

Card = dict[str, Any]


async def until(http: httpx2.AsyncClient, told: Callable[[Card], bool]) -> Card:
    """The card, as soon as it says something."""
    async with asyncio.timeout(PATIENCE):
        while True:
            card: Card = (await http.get(CARD)).json()
            if told(card):
                return card
            await asyncio.sleep(0.05)


def is_judged(card: Card) -> bool:
    return card["capabilities"]["chooses_tools"] is not None


def asked_tools(script: ScriptedOpenAI) -> list[dict[str, Any]]:
    """The questions of the test that have arrived."""
    return [body for body in script.requests if body.get("tools") == list(TEST_TOOLS)]


def chooser(right: Callable[[int], bool]) -> Callable[[dict[str, Any]], Answer | str]:
    """A model that chooses rightly where `right` says so of a question's number, and else calls
    where nothing is needed and says something where a tool is."""
    questions = list(NEEDED)

    def answer(body: dict[str, Any]) -> Answer | str:
        question = body["messages"][-1]["content"]
        if question not in NEEDED:
            return "ok"
        needed = NEEDED[question]
        name = needed if right(questions.index(question)) else (None if needed else "weather")
        return Answer(calls=((name, json.dumps({"city": "Oslo"})),)) if name else "Well."

    return answer


def small_upstream(script: ScriptedOpenAI) -> dict[str, Any]:
    script.model = "tiny-1b"
    return {"upstream": script.url}


async def test_the_built_in_model_says_its_size_and_its_speed_and_is_not_tested(
    model_file: Path, tmp_path: Path
) -> None:
    model = {"cache_dir": str(model_file.parent), "context": 1024, "slots": 1, "threads": 1}
    async with agent_client(model, data=tmp_path) as http:
        card = await until(http, lambda card: card["prompt_tokens_per_second"] is not None)
    assert card["parameters"] == 134_515_008
    assert (card["window"], card["max_model_len"]) == (1024, 1024)
    assert card["weights"] == "SmolLM2-135M-Instruct.Q4_1"
    assert card["gpus"] == []
    assert card["prompt_tokens_per_second"] > 0
    assert (card["capabilities"]["tools"], card["capabilities"]["chooses_tools"]) == (
        "forced",
        False,
    )
    async with agent_client(model, data=tmp_path) as http:
        known = await until(http, lambda card: card["parameters"] is not None)
    assert known["prompt_tokens_per_second"] is not None, "it is kept from one start to the next"


async def test_an_upstream_has_no_speed(engine: EngineAddress, tmp_path: Path) -> None:
    async with agent_client(engine.settings(), data=tmp_path) as http:
        messages = [{"role": "user", "content": "word " * 100 + str(tmp_path)}]
        await http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 2})
        card = await until(http, lambda card: card["parameters"] is not None)
    assert card["prompt_tokens_per_second"] is None


async def test_a_small_upstream_that_is_near_is_tested_once_and_remembered(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        model = small_upstream(script)
        script.default = chooser(lambda number: number not in (0, 1))
        async with agent_client(model, data=tmp_path) as http:
            card = await until(http, is_judged)
        assert card["capabilities"]["chooses_tools"] is True
        assert card["parameters"] == 1_000_000_000
        assert len(asked_tools(script)) == len(TEST_CASES)
        assert all(body["temperature"] == 0 for body in asked_tools(script))
        async with agent_client(model, data=tmp_path) as http:
            await until(http, is_judged)
        assert len(asked_tools(script)) == len(TEST_CASES), "what is known is not asked again"
        script.model = "other-1b"
        async with agent_client(model, data=tmp_path) as http:
            await until(http, is_judged)
        assert len(asked_tools(script)) == 2 * len(TEST_CASES), "another model is another matter"


async def test_a_model_that_thinks_before_it_calls_a_tool_passes(tmp_path: Path) -> None:
    choose = chooser(lambda number: True)

    def think(body: dict[str, Any]) -> Answer | str:
        if body.get("max_tokens", 1_000) < 500:
            return Answer(reasoning="They want " * 100, finish="length")
        answer = choose(body)
        return answer if isinstance(answer, str) else replace(answer, reasoning="Hm. " * 200)

    async with ScriptedOpenAI() as script:
        script.default = think
        async with agent_client(small_upstream(script), data=tmp_path) as http:
            card = await until(http, is_judged)
    assert card["capabilities"]["chooses_tools"] is True


@pytest.mark.parametrize(
    "right",
    [
        lambda number: NEEDED[list(NEEDED)[number]] is None,  # it never calls
        lambda number: NEEDED[list(NEEDED)[number]] is not None,  # it always does
        lambda number: number < 7,
    ],
)
async def test_a_guessing_model_does_not_pass(tmp_path: Path, right: Callable[[int], bool]) -> None:
    async with ScriptedOpenAI() as script:
        script.default = chooser(right)
        async with agent_client(small_upstream(script), data=tmp_path) as http:
            card = await until(http, is_judged)
    assert card["capabilities"]["chooses_tools"] is False


async def test_until_it_is_tested_the_card_says_so_and_answers_are_given(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.think()
        async with agent_client(small_upstream(script), data=tmp_path) as http:
            await script.arrived()
            card = (await http.get(CARD)).json()
            assert card["capabilities"]["chooses_tools"] is None
            body = {"messages": [{"role": "user", "content": "hi"}]}
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.json()["choices"][0]["message"]["content"] == "ok"
            script.release()
            await until(http, is_judged)


async def test_a_test_that_broke_off_is_begun_again(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        script.fail(400, "not now")
        script.default = chooser(lambda number: True)
        async with agent_client(small_upstream(script), data=tmp_path) as http:
            card = await until(http, is_judged)
            usage = (await http.get("/usage")).json()
    assert card["capabilities"]["chooses_tools"] is True
    assert "terrarium" in json.dumps(usage), "what the server asks by itself is in its own name"


async def test_before_the_engine_tells_what_it_is_nothing_is_assumed(tmp_path: Path) -> None:
    model = {"upstream": "http://127.0.0.1:9"}
    async with (
        agent_server(model, data=tmp_path, ready=False) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        card = (await http.get(CARD)).json()
        assert card["capabilities"]["chooses_tools"] is None
        assert card["parameters"] is None
        assert (await http.get("/ready")).status_code == 503
        assert (await http.get("/health")).json() == {"status": "ok"}
        body = {"messages": [{"role": "user", "content": "hi"}]}
        answer = await http.post("/v1/chat/completions", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "engine_unavailable"
        named = (await http.get("/v1/models/terra:big-70b")).json()
        assert (named["parameters"], named["capabilities"]["chooses_tools"]) == (70 * 10**9, True)


def timings(tokens: Any, milliseconds: float) -> dict[str, Any]:
    return {"choices": [], "timings": {"prompt_n": tokens, "prompt_ms": milliseconds}}


def test_the_speed_goes_with_the_time_and_what_came_from_a_cache_says_nothing_of_it() -> None:
    speed = PromptSpeed()
    speed.observe({"choices": [{"index": 0, "delta": {"content": "Hi"}}]})
    speed.observe(timings(4, 90.0))
    speed.observe(timings("x", 90.0))
    speed.observe({"choices": [], "timings": None})
    assert speed.rate is None
    speed.observe(timings(1_000, 2_000.0))
    assert speed.rate == pytest.approx(500)
    speed.note(100, 1.0)  # large prompts weigh more
    assert speed.rate == pytest.approx(366, rel=0.01)
    for _ in range(20):
        speed.note(1_000, 1.0)
    assert speed.rate == pytest.approx(1_000, rel=0.1)


def test_an_earlier_start_is_believed_until_answers_tell_better() -> None:
    speed = PromptSpeed()
    for rate in (0, 100, 400, 50):
        speed.seed(rate)
    assert speed.rate == pytest.approx(400)
    speed.note(968, 9.92)
    assert speed.rate == pytest.approx(100, rel=0.02)
    speed.seed(10_000)
    assert speed.rate == pytest.approx(100, rel=0.02)
