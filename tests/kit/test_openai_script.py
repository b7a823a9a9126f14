"""The scripted server itself, driven by the official SDK."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI

from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE


def client(script: ScriptedOpenAI) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{script.url}/v1", api_key="any", max_retries=0)


async def test_the_script_answers_words_and_calls_in_order() -> None:
    async with ScriptedOpenAI() as script, client(script) as openai:
        script.say("two words").call("lookup", {"name": "ada"})
        first = await openai.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "one two three"}]
        )
        second = await openai.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "go"}]
        )
        assert first.choices[0].message.content == "two words"
        assert first.usage is not None
        assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (3, 2)
        calls = second.choices[0].message.tool_calls
        assert calls is not None
        assert calls[0].type == "function"
        assert calls[0].function.arguments == '{"name": "ada"}'
        assert second.choices[0].finish_reason == "tool_calls"
        assert [len(body["messages"]) for body in script.requests] == [1, 1]


async def test_the_script_streams_words_calls_and_usage() -> None:
    async with ScriptedOpenAI() as script, client(script) as openai:
        script.say("a  b c").call("lookup", {"name": "ada"})
        for expected in ("a  b c", '{"name": "ada"}'):
            text, prompt = "", 0
            async for chunk in await openai.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "one two"}],
                stream=True,
                stream_options={"include_usage": True},
            ):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or []:
                        text += (call.function and call.function.arguments) or ""
                prompt = chunk.usage.prompt_tokens if chunk.usage else 0
            assert (text, prompt) == (expected, 2)


async def test_the_script_fails_hangs_and_notices_a_client_that_leaves() -> None:
    async with ScriptedOpenAI() as script, client(script) as openai:
        script.fail(429, "slow down", headers={"retry-after": "7"}).hang("beginning")
        messages = [{"role": "user", "content": "hi"}]
        with pytest.raises(APIStatusError) as failure:
            await openai.post("/chat/completions", body={"messages": messages}, cast_to=object)
        assert failure.value.response.headers["retry-after"] == "7"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            body = {"messages": messages, "stream": True}
            async with http.stream(
                "POST", f"{script.url}/v1/chat/completions", json=body
            ) as response:
                async with asyncio.timeout(PATIENCE):
                    async for line in response.aiter_lines():
                        if "beginning" in line:
                            break
        await script.client_gone()
        await script.arrived(2)


async def test_the_script_counts_words_as_tokens() -> None:
    async with (
        ScriptedOpenAI(max_model_len=77) as script,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        messages = [
            {"role": "user", "content": [{"type": "text", "text": "a b"}]},
            {"role": "assistant", "content": None},
        ]
        answer = await http.post(f"{script.url}/tokenize", json={"messages": messages})
        assert answer.json() == {"count": 2, "max_model_len": 77, "tokens": [0, 1]}
