"""An upstream that speaks Anthropic's Messages API: a second agent server in front of a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.kit.agent_server import agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


@asynccontextmanager
async def chain() -> AsyncIterator[tuple[ScriptedOpenAI, httpx2.AsyncClient]]:
    """A server whose model `claude` is behind the Messages API of another server."""
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "name": "claude-1"}, {"admin_key": "secret"}) as far,
    ):
        model = {"api": "anthropic", "upstream": far, "upstream_key": "secret", "name": "claude"}
        async with (
            agent_server(model) as url,
            httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
        ):
            yield script, http


async def test_an_answer_comes_whole_with_its_usage() -> None:
    async with chain() as (script, http):
        script.cached_tokens = 1
        script.say("first").say("three short words")
        body = {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "one " * 40},
                {"role": "user", "content": "two"},
            ],
            "temperature": 1.5,
            "stop": "END",
            "max_tokens": 77,
        }
        first = (await http.post(CHAT, json=body)).json()
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0  # it may be others'
        answer = (await http.post(CHAT, json=body)).json()
        assert answer["model"] == "claude"
        assert answer["choices"][0]["message"]["content"] == "three short words"
        assert answer["choices"][0]["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 3
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 1
        asked = script.requests[0]
        assert (asked["temperature"], asked["stop"], asked["max_tokens"]) == (1, ["END"], 77)
        assert [each["role"] for each in asked["messages"]] == ["system", "user"]


async def test_a_stream_brings_thoughts_words_and_calls_in_order() -> None:
    async with chain() as (script, http):
        script.answer(Answer("Well.", calls=(("look", '{"at": "sky"}'),)))
        body = {**HELLO, "tools": [LOOK], "stream": True, "stream_options": {"include_usage": True}}
        text = (await http.post(CHAT, json=body)).text
        assert text.endswith("data: [DONE]\n\n")
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == "Well."
        parts = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
        assert parts[0]["name"] == "look"
        assert json.loads("".join(part.get("arguments") or "" for part in parts)) == {"at": "sky"}
        assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert chunks[-1]["usage"]["total_tokens"] > 0


async def test_calls_and_their_results_go_back_as_blocks() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "look", "arguments": '{"at": "sky"}'},
    }
    async with chain() as (script, http):
        body = {
            "messages": [
                *HELLO["messages"],
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
            ],
            "tools": [LOOK],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": False,
        }
        assert (await http.post(CHAT, json=body)).status_code == 200
        asked = script.requests[0]
        history = {each["role"]: each for each in asked["messages"]}
        assert history["assistant"]["tool_calls"][0]["id"] == "call_1"
        arguments = history["assistant"]["tool_calls"][0]["function"]["arguments"]
        assert json.loads(arguments) == {"at": "sky"}
        assert history["tool"]["content"] == "blue"
        assert asked["tools"][0]["function"]["name"] == "look"
        assert asked["tool_choice"]["function"]["name"] == "look"


async def test_tokens_are_counted_there() -> None:
    async with chain() as (_, http):
        counted = (await http.post("/tokenize", json=HELLO)).json()
        assert counted["count"] == 1
        assert counted["max_model_len"] == 200_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("presence_penalty", 1),
        ("response_format", {"type": "json_object"}),
    ],
)
async def test_what_cannot_be_said_there_is_refused_by_name(field: str, value: Any) -> None:
    async with chain() as (script, http):
        answer = await http.post(CHAT, json={**HELLO, field: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
        assert script.requests == []


async def test_its_errors_are_told_in_our_terms() -> None:
    async with chain() as (script, http):
        script.fail(400, "the prompt: maximum context length exceeded").fail(429, "slow down")
        first = await http.post(CHAT, json=HELLO)
        assert first.json()["error"]["code"] == "context_length_exceeded"
        second = await http.post(CHAT, json=HELLO)
        assert second.status_code == 429
        script.cut("a beginning")
        third = await http.post(CHAT, json={**HELLO, "stream": True})
        assert "engine_unavailable" in third.text
