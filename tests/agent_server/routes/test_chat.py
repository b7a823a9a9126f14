"""Chats with the official SDK: every event and error in the form that it knows."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.kit.openai_script import Answer, ScriptedOpenAI

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CALLS = (("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "Rome"}'))

EVIL = (
    "data: [DONE]\n\ndata: {}\r\n\r\nevent: error\nid: 1\n\n",
    ": comment\n\n\u2028\u2029\u0085\x0b\x0c\x1c",
    '"},"finish_reason":"stop"}]}\n\n',
    "\x00 \x1b[31m 🙂",
)
"""Words of a model that look like the end of an event."""


async def test_the_chunks_come_in_order(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.answer(Answer("Two words", calls=CALLS[:1], reasoning="Hm."))
    stream = await openai.chat.completions.create(
        model="terra", messages=HELLO, tools=[TOOL], stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = [chunk async for chunk in stream]
    deltas = [choice.delta.to_dict() for chunk in chunks for choice in chunk.choices]
    assert deltas == [
        {"role": "assistant", "content": None},
        {"reasoning_content": "Hm."},
        {"content": "Two"}, {"content": " words"},
        {"tool_calls": [{"index": 0, "id": "call_0", "type": "function",
                         "function": {"name": "get_weather", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "Oslo"}'}}]},
        {},
    ]  # fmt: skip
    ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert ends == [None] * 7 + ["tool_calls"]
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk.model for chunk in chunks} == {"terra"}
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    assert [chunk.usage is not None for chunk in chunks] == [False] * 8 + [True]
    assert chunks[-1].choices == []


@pytest.mark.parametrize("stream", [True, False])
async def test_several_calls_are_put_together(
    openai: AsyncOpenAI, script: ScriptedOpenAI, stream: bool
) -> None:
    script.answer(Answer("Looking.", calls=CALLS))
    asked: dict[str, Any] = {"model": "terra", "messages": HELLO, "tools": [TOOL]}
    if stream:
        async with openai.chat.completions.stream(**asked) as events:
            answer = await events.get_final_completion()
    else:
        answer = await openai.chat.completions.create(**asked)
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Looking.")
    assert choice.message.tool_calls is not None
    made: list[Any] = list(choice.message.tool_calls)
    assert [call.id for call in made] == ["call_0", "call_1"]
    assert [json.loads(call.function.arguments)["city"] for call in made] == ["Oslo", "Rome"]


async def test_every_steering_field_arrives(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    steering: dict[str, Any] = {
        "frequency_penalty": 0.5, "logit_bias": {"5": -1.0}, "logprobs": True, "n": 2,
        "parallel_tool_calls": False, "presence_penalty": -0.5, "reasoning_effort": "low",
        "response_format": {"type": "json_object"}, "seed": 7, "stop": ["x", "y"],
        "temperature": 0.3, "tool_choice": {"type": "function", "function":
                                            {"name": "get_weather"}},
        "tools": [TOOL], "top_logprobs": 3, "top_p": 0.8, "verbosity": "low",
    }  # fmt: skip
    await openai.chat.completions.create(
        model="terra", messages=HELLO, max_completion_tokens=33, **steering,
        extra_body={"top_k": 5, "min_p": 0.1},
    )  # fmt: skip
    (asked,) = script.requests
    assert {key: asked[key] for key in steering} == steering
    assert (asked["max_tokens"], asked["top_k"], asked["min_p"]) == (33, 5, 0.1)
    assert asked["messages"] == HELLO


@pytest.mark.parametrize("words", EVIL)
async def test_what_a_model_says_cannot_end_an_event(
    openai: AsyncOpenAI, http: httpx2.AsyncClient, script: ScriptedOpenAI, words: str
) -> None:
    script.default = Answer("x", pieces=(words, "after"), reasoning=words,
                            calls=(("get_weather", json.dumps({"city": words})),))  # fmt: skip
    stream = await openai.chat.completions.create(
        model="terra", messages=HELLO, tools=[TOOL], stream=True
    )
    deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == words + "after"
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": HELLO},
        "/v1/completions": {"prompt": "x"},
        "/v1/responses": {"input": "x"},
        "/v1/messages": {"model": "terra", "max_tokens": 9, "messages": HELLO,
                         "thinking": {"type": "adaptive"}},
    }  # fmt: skip
    for path, body in bodies.items():
        raw = (await http.post(path, json={**body, "stream": True})).content
        for event in raw.rstrip(b"\n").split(b"\n\n"):
            *name, data = event.split(b"\n")
            assert data.startswith(b"data: ")
            assert all(line.startswith(b"event: ") for line in name)
            assert data == b"data: [DONE]" or json.loads(data.removeprefix(b"data: "))
        assert b"\r" not in raw


async def test_half_a_character_does_not_break_an_answer(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        for stream in (True, False):
            script.say("x", pieces=("a", "\ud83d", "\ude42", "b"))
            # So many tokens that the upstream is asked for pieces.
            body = {"model": "terra", "max_tokens": 999, "messages": HELLO, "stream": stream}
            if path == "/v1/responses":
                body = {"input": "x", "stream": stream}
            answer = await http.post(path, json=body)
            assert answer.status_code == 200
            assert "\\ud83d" in answer.text
            assert "error" not in answer.text or 'error":null' in answer.text


async def test_names_that_clients_make_up_cannot_become_headers(http: httpx2.AsyncClient) -> None:
    for name in ("x\r\nset-cookie: a=b", "x\n\ndata: y", "\ud800", "\0"):
        for body in ({"messages": HELLO, "model": name}, {"messages": HELLO, name: 1}):
            answer = await http.post(
                "/v1/chat/completions",
                content=json.dumps(body),
                headers={"content-type": "application/json"},
            )
            assert answer.status_code in (400, 404)
            assert answer.json()["error"]["message"]
            assert "set-cookie" not in answer.headers
