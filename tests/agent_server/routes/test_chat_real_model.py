"""Chat against the real model, with the official SDK as the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx2
import pytest
from openai import AsyncOpenAI, BadRequestError
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from agent_server.settings.models import ModelConfig
from tests.kit.agent_server import EngineAddress, agent_client, agent_server
from tests.kit.patience import PATIENCE

pytest_plugins = ("tests.kit.engine",)

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
ENDLESS = {"2": -100}
"""Keeps the model from ending its answer by itself."""

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 40},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city", "unit"],
        },
    },
}


@pytest.fixture
async def url(engine: EngineAddress) -> AsyncIterator[str]:
    async with agent_server(engine.settings()) as address:
        yield address


@pytest.fixture
async def openai(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_an_answer_has_text_and_usage_and_a_long_prompt_a_code(openai: AsyncOpenAI) -> None:
    answer = await openai.chat.completions.create(
        model="terra", messages=HELLO, max_tokens=8, temperature=0
    )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.model == "terra"
    assert answer.usage is not None
    assert 10 < answer.usage.prompt_tokens < 100
    assert 1 <= answer.usage.completion_tokens <= 8
    with pytest.raises(BadRequestError) as failure:
        await openai.chat.completions.create(
            model="terra", messages=[{"role": "user", "content": "hi " * 3000}]
        )
    assert failure.value.code == "context_length_exceeded"
    assert "1024" in failure.value.message


async def test_the_built_in_model_says_hello_without_a_temperature(engine: EngineAddress) -> None:
    model = {**engine.settings(), "temperature": ModelConfig().default_temperature}
    async with agent_client(model) as http:
        for seed in range(4):
            asked = {"messages": HELLO, "max_tokens": 12, "seed": seed}
            answer = (await http.post("/v1/chat/completions", json=asked)).json()
            assert "hello" in answer["choices"][0]["message"]["content"].lower()


async def test_an_answer_follows_a_schema(openai: AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}},
        "required": ["mood"],
        "additionalProperties": False,
    }
    answer = await openai.chat.completions.create(
        model="terra",
        messages=HELLO,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "")["mood"] in ("good", "bad")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_required_call_is_always_a_valid_call(openai: AsyncOpenAI, seed: int) -> None:
    answer = await openai.chat.completions.create(
        model="terra",
        messages=[{"role": "user", "content": "How warm is it in Oslo?"}],
        tools=[WEATHER],
        tool_choice="required",
        seed=seed,
        max_tokens=400,
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.loads(call.function.arguments)
    assert set(arguments) == {"city", "unit"}
    assert arguments["unit"] in ("C", "F")


async def test_tokenize_counts_what_a_chat_sends_and_generate_works(
    http: httpx2.AsyncClient,
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi!"}]
    for extra in ({}, {"tools": [WEATHER]}, {"tools": [WEATHER], "tool_choice": "none"}):
        body = {"messages": messages, **extra}
        counted = (await http.post("/tokenize", json=body)).json()
        answer = await http.post("/v1/chat/completions", json={**body, "max_tokens": 1})
        assert counted["count"] == answer.json()["usage"]["prompt_tokens"]
        assert counted["count"] == len(counted["tokens"])
        assert counted["max_model_len"] == 1024
    text = (await http.post("/tokenize", json={"prompt": "hello world"})).json()
    assert text["tokens"] == [28120, 905]
    answer = await http.post("/v1/generate", json={"prompt": "Say hello.", "max_tokens": 6})
    made = answer.json()
    assert made["text"]
    assert made["usage"]["completion_tokens"] <= 6


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_the_generation(
    http: httpx2.AsyncClient, engine: EngineAddress, stream: bool
) -> None:
    body = {
        "messages": [{"role": "user", "content": "Count from one to a thousand."}],
        "max_tokens": 900,
        "stream": stream,
        "logit_bias": ENDLESS,
    }
    before = await counted(engine, "tokens_predicted_total")
    answer = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
    await until_busy(engine, True)
    answer.cancel()
    await asyncio.wait({answer})
    await until_busy(engine, False)
    assert await counted(engine, "tokens_predicted_total") - before < 900


async def counted(engine: EngineAddress, metric: str) -> float:
    async with asking(engine) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"llamacpp:{metric} "))


async def until_busy(engine: EngineAddress, wanted: bool) -> None:
    async with asyncio.timeout(PATIENCE), asking(engine) as http:
        while True:
            slots = (await http.get("/slots")).json()
            if any(slot["is_processing"] for slot in slots) is wanted:
                return
            await asyncio.sleep(0.01)


def asking(engine: EngineAddress) -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {engine.key}"}
    return httpx2.AsyncClient(base_url=engine.url, headers=headers, timeout=PATIENCE)
