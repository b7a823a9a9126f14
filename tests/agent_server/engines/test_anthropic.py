"""An upstream that speaks Anthropic's Messages API: a second agent server in front of a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from agent_server.engines.anthropic import MAX_ANSWER_TOKENS
from tests.kit.agent_server import CHAT, agent_client, agent_server, tool
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.serving import serving

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LOOK = tool("look", "at")


@asynccontextmanager
async def chain() -> AsyncIterator[tuple[ScriptedOpenAI, httpx2.AsyncClient]]:
    """A server whose model `claude` is behind the Messages API of another server."""
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "name": "claude-1"}, {"admin_key": "secret"}) as far,
    ):
        model = {"api": "anthropic", "upstream": far, "upstream_key": "secret", "name": "claude"}
        async with agent_client(model) as http:
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


async def test_its_card_tells_the_window_and_the_longest_answer() -> None:
    asked: list[dict[str, Any]] = []
    card = {
        "type": "model",
        "id": "claude-2",
        "max_input_tokens": 500_000,
        "max_tokens": 32_000,
        "capabilities": {"image_input": {"supported": False}, "thinking": {"supported": True}},
    }

    async def models(_request: Request) -> JSONResponse:
        return JSONResponse({"data": [card]})

    async def model(_request: Request) -> JSONResponse:
        return JSONResponse(card)

    async def messages(request: Request) -> JSONResponse:
        asked.append(await request.json())
        problem = {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > "}
        problem["message"] += "450000 maximum"
        return JSONResponse({"type": "error", "error": problem}, 400)

    routes = [
        Route("/v1/models", models),
        Route("/v1/models/claude-2", model),
        Route("/v1/messages", messages, methods=["POST"]),
    ]
    async with (
        serving(Starlette(routes=routes)) as upstream,
        agent_client({"api": "anthropic", "upstream": upstream}) as http,
    ):
        found = (await http.get("/v1/models/terra")).json()
        assert (found["max_model_len"], found["weights"]) == (500_000, "claude-2")
        assert (found["capabilities"]["vision"], found["capabilities"]["reasoning"]) == (
            False,
            True,
        )
        answer = await http.post(CHAT, json=HELLO)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert (asked[0]["model"], asked[0]["max_tokens"]) == ("claude-2", 32_000)
        assert (await http.get("/v1/models/terra")).json()["max_model_len"] == 450_000


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
        # The limit that the API requires, where nobody asks for one.
        assert asked["max_tokens"] == MAX_ANSWER_TOKENS
        counted = (await http.post("/tokenize", json=HELLO)).json()
        assert (counted["count"], counted["max_model_len"]) == (1, 200_000)


REFUSED: dict[str, Any] = {
    "n": 2,
    "logprobs": True,
    "presence_penalty": 1,
    "response_format": {"type": "json_object"},
}


async def test_what_is_unsupported_there_is_refused_and_errors_are_told_in_our_terms() -> None:
    async with chain() as (script, http):
        for field, value in REFUSED.items():
            answer = await http.post(CHAT, json={**HELLO, field: value})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
            assert script.requests == []
        script.fail(400, "the prompt: maximum context length exceeded").fail(429, "slow down")
        first = await http.post(CHAT, json=HELLO)
        assert first.json()["error"]["code"] == "context_length_exceeded"
        second = await http.post(CHAT, json=HELLO)
        assert second.status_code == 429
        script.cut("a beginning")
        third = await http.post(CHAT, json={**HELLO, "stream": True})
        assert "engine_unavailable" in third.text
