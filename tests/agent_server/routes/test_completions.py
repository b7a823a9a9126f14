"""POST /v1/completions: bare texts continued, with the official SDK as the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, InternalServerError

from tests.kit.agent_server import EngineAddress, agent_client, agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.plain_openai import plain_openai
from tests.kit.server_keys import until_metric

pytest_plugins = ("tests.kit.engine",)

ENDLESS = {"2": -100, "0": -100}
"""Keeps the model from ending its answer by itself."""


@pytest.fixture
async def real(engine: EngineAddress) -> AsyncIterator[AsyncOpenAI]:
    async with (
        agent_server(engine.settings()) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


async def test_a_text_is_continued(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.say("upon a time")
    answer = await openai.completions.create(model="terra", prompt="Once", max_tokens=9, stop="x")
    assert (answer.object, answer.model) == ("text_completion", "terra")
    assert answer.id.startswith("cmpl-")
    (choice,) = answer.choices
    assert (choice.text, choice.index, choice.finish_reason) == ("upon a time", 0, "stop")
    assert choice.logprobs is not None
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 3)
    (asked,) = script.requests
    assert (asked["prompt"], asked["max_tokens"], asked["stop"]) == ("Once", 9, "x")
    await openai.completions.create(model="terra", prompt="Once")
    assert script.requests[1]["max_tokens"] == 16, "the API's own limit"


async def test_a_stream_has_its_usage_last(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.say("upon a time")
    stream = await openai.completions.create(
        model="terra", prompt="Once", stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert [choice.text for chunk in chunks for choice in chunk.choices] == [
        "upon", " a", " time", "",
    ]  # fmt: skip
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 4
    assert len({chunk.id for chunk in chunks}) == 1


async def test_several_prompts_are_answered_in_order_and_counted_together(
    openai: AsyncOpenAI, script: ScriptedOpenAI
) -> None:
    script.say("one").say("two words")
    answer = await openai.completions.create(
        model="terra", prompt=["first prompt", "second"], echo=True
    )
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "first promptone"), (1, "secondtwo words"),
    ]  # fmt: skip
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 3)
    assert [asked["prompt"] for asked in script.requests] == ["first prompt", "second"]


@pytest.mark.parametrize(("wanted", "tops"), [(2, 2), (0, 0)])
async def test_log_probabilities_have_the_form_of_this_endpoint(
    openai: AsyncOpenAI, script: ScriptedOpenAI, wanted: int, tops: int
) -> None:
    script.say("a b")
    answer = await openai.completions.create(model="terra", prompt="x", logprobs=wanted)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", " b"]
    assert logprobs.token_logprobs == [-0.5, -0.5]
    assert logprobs.text_offset == [0, 1]
    assert [len(top) for top in logprobs.top_logprobs or []] == ([tops, tops] if tops else [])


@pytest.mark.parametrize(("prompt", "asked"), [([5, 6], [[5, 6]]), ([[5, 6], [7]], [[5, 6], [7]])])
async def test_token_ids_reach_the_engine(
    openai: AsyncOpenAI, script: ScriptedOpenAI, prompt: Any, asked: Any
) -> None:
    answer = await openai.completions.create(model="terra", prompt=prompt)
    assert len(answer.choices) == len(asked)
    assert [request["prompt"] for request in script.requests] == asked


async def test_the_real_model_continues_a_text(real: AsyncOpenAI) -> None:
    answer = await real.completions.create(
        model="terra", prompt="The sky is", max_tokens=3, n=2, logprobs=2, logit_bias=ENDLESS
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 6)
    for choice in answer.choices:
        assert choice.finish_reason == "length"
        assert choice.logprobs is not None
        assert len(choice.logprobs.tokens or []) == 3
        assert "".join(choice.logprobs.tokens or []) == choice.text
        assert [len(top) for top in choice.logprobs.top_logprobs or []] == [2, 2, 2]
    # It takes tokens, too, and refuses unknown ones.
    answer = await real.completions.create(model="terra", prompt=[504, 6376, 314], max_tokens=2)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    with pytest.raises(BadRequestError):
        await real.completions.create(model="terra", prompt=[2**30], max_tokens=2)


async def test_an_upstream_without_completions_is_told_so_and_sdks_do_not_ask_again() -> None:
    async with (
        plain_openai({"role": "assistant", "content": "hi"}) as upstream,
        agent_client({"upstream": upstream}) as http,
        AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="any") as openai,
    ):
        with pytest.raises(InternalServerError, match="/v1/completions") as failure:
            await openai.completions.create(model="terra", prompt="x")
        assert failure.value.status_code == 501
        await until_metric(
            http, 'terrarium_requests_total{route="/v1/completions",status="501"} 1.0'
        )
