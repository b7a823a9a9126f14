"""What the server refuses, and how it says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.kit.agent_server import CHAT, agent_client
from tests.kit.openai_script import ScriptedOpenAI

JSON = {"content-type": "application/json"}
USER: dict[str, Any] = {"role": "user", "content": "hi"}
GOOD: dict[str, Any] = {"messages": [USER]}
TOOL = {"type": "function", "function": {"name": "lookup"}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.fixture
async def http(script: ScriptedOpenAI) -> AsyncIterator[httpx2.AsyncClient]:
    server = {"max_body_bytes": 10_000}
    async with agent_client({"upstream": script.url}, server) as client:
        yield client


BAD: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({}, "messages", None),
    ({"messages": []}, "messages", None),
    ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0]", None),
    ({"messages": [{"role": "user"}]}, "messages[0].content", None),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", None),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]},
     "messages[0].content[0].text", None),
    ({"messages": [USER, {"role": "assistant", "content": None}]}, "messages[1]", None),
    ({"messages": [{**USER, "mood": "good"}]}, "messages[0].mood", None),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", None),
    ({**GOOD, "temperature": -1}, "temperature", None),
    ({**GOOD, "temperature": 2.1}, "temperature", None),
    ({**GOOD, "top_p": 1.5}, "top_p", None),
    ({**GOOD, "n": 0}, "n", None),
    ({**GOOD, "max_tokens": 0}, "max_tokens", None),
    ({**GOOD, "stop": ["a", "b", "c", "d", "e"]}, "stop", None),
    ({**GOOD, "tools": [{"type": "function", "function": {"name": "a b"}}]},
     "tools[0].function.name", None),
    ({**GOOD, "tools": [TOOL, TOOL]}, None, None),
    ({**GOOD, "tool_choice": "required"}, None, None),
    ({**GOOD, "stream_options": {"include_usage": True}}, None, None),
    ({**GOOD, "top_logprobs": 2}, None, None),
    ({**GOOD, "response_format": {"type": "json_schema"}}, "response_format", None),
    ({**GOOD, "audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({**GOOD, "functions": []}, "functions", "unsupported_parameter"),
    ({**GOOD, "store": True}, "store", "unsupported_parameter"),
    ({**GOOD, "modalities": ["audio"]}, "modalities[0]", None),
    ({**GOOD, "temprature": 1}, "temprature", "unknown_parameter"),
    ({**GOOD, "seed": 10**30}, "seed", None),
    ({**GOOD, "logit_bias": {"2": 101}}, "logit_bias", None),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, None, "invalid_json"),
    ({**GOOD, "stop": "\ud800"}, None, "invalid_json"),
    ({**GOOD, "tools": [{"type": "function",
                         "function": {"name": "a", "parameters": {"\ud800": 1}}}]}, None,
     "invalid_json"),
    ({**GOOD, "tools": [{"type": "function",
                         "function": {"name": "a", "parameters": deep(65)}}]},
     "tools[0].function.parameters", None),
]  # fmt: skip


async def test_a_bad_request_is_refused_by_the_name_of_its_field(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for body, param, code in BAD:
        answer = await http.post(CHAT, content=json.dumps(body), headers=JSON)
        error = answer.json()["error"]
        assert answer.status_code == 400
        assert (error["param"], error["code"]) == (param, code), body
        assert error["type"] == "invalid_request_error"
        assert error["message"]
        assert script.requests == []
        if code == "unknown_parameter":
            assert "did you mean temperature" in error["message"]


async def test_a_number_that_json_does_not_know_is_refused(http: httpx2.AsyncClient) -> None:
    for number in ("NaN", "Infinity", "-Infinity"):
        for text in (
            f'{{"messages": [{{"role": "user", "content": "hi"}}], "temperature": {number}}}',
            f'{{"messages": [{{"role": "user", "content": "hi"}}], "tools": [{{"type": "function", '
            f'"function": {{"name": "a", "parameters": {{"default": {number}}}}}}}]}}',
        ):
            answer = await http.post(CHAT, content=text, headers=JSON)
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_hints_that_change_nothing_are_accepted_and_kept_from_the_engine(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    extra = {"user": "ada", "metadata": {"a": "b"}, "store": False, "audio": None}
    answer = await http.post(CHAT, json={**GOOD, **extra, "seed": 5, "stop": "x", "top_k": 3})
    assert answer.status_code == 200
    (seen,) = script.requests
    assert not {"user", "metadata", "store", "audio"} & seen.keys()
    assert (seen["seed"], seen["stop"], seen["top_k"]) == (5, "x", 3)
    # So is an answer that is sent back as the SDK dumps it.
    dumped = {
        "role": "assistant", "content": "hello", "refusal": None, "annotations": None,
        "audio": None, "function_call": None, "tool_calls": None,
    }  # fmt: skip
    answer = await http.post(CHAT, json={"messages": [USER, dumped, USER]})
    assert answer.status_code == 200
    assert script.requests[1]["messages"][1] == {"role": "assistant", "content": "hello"}


async def test_unknown_paths_methods_and_broken_json_are_errors(http: httpx2.AsyncClient) -> None:
    for path, status, words in (
        ("/v1/nothing", 404, "/v1/nothing"), ("/nothing", 404, "/nothing"), (CHAT, 405, "GET"),
    ):  # fmt: skip
        answer = await http.get(path)
        assert answer.status_code == status
        assert words in answer.json()["error"]["message"]
    for content, code in ((b'{"messages": [', "invalid_json"), (b"\xff\x00\xfe", "invalid_json")):
        broken = await http.post(CHAT, content=content, headers=JSON)
        error = broken.json()["error"]
        assert (broken.status_code, error["code"]) == (400, code)
        assert error["type"] == "invalid_request_error"


async def test_a_body_over_the_limit_is_refused_declared_or_not(http: httpx2.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1000

    for content in (b" " * 20_000, pieces()):
        answer = await http.post(CHAT, content=content, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        assert "10000 bytes" in answer.json()["error"]["message"]


async def test_a_plain_request_id_is_echoed_and_else_one_is_made(http: httpx2.AsyncClient) -> None:
    for body in (GOOD, {}):
        answer = await http.post(CHAT, json=body, headers={"x-request-id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
    made = [(await http.get("/health")).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for header in (b"a b", b"\xff", b"x" * 129, b"a\tb", b'"><script>'):
        answer = await http.get("/v1/models", headers=[(b"x-request-id", header)])
        echoed = answer.headers["x-request-id"]
        assert echoed.isascii()
        assert echoed.isprintable()
        assert " " not in echoed
        assert len(echoed) <= 128


BODIES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, GOOD),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
    ("/v1/messages", {**GOOD, "model": "terra", "max_tokens": 3}),
    ("/v1/embeddings", {"input": "hi"}),
    ("/v1/generate", {"prompt": "hi"}),
]


async def test_every_endpoint_refuses_a_wrong_header_and_tokenize_a_wrong_field(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for path, body in BODIES:
        for header in (
            {"x-priority": "urgent"},
            {"x-session-id": "x" * 257},
            {"x-channel": "c" * 65},
        ):
            answer = await http.post(path, json=body, headers=header)
            assert answer.status_code == 400, path
            assert next(iter(header)) in answer.json()["error"]["message"]
            assert script.requests == []
    for wrong, param in [({}, "prompt"), ({"messages": []}, "messages"), ({"prompt": 3}, "prompt")]:
        answer = await http.post("/tokenize", json=wrong)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_with_a_key_every_model_request_needs_it(script: ScriptedOpenAI) -> None:
    server = {"admin_key": "s3cret-key", "host": "0.0.0.0"}
    async with agent_client({"upstream": script.url}, server) as client:
        for given in ("", "Bearer nope", "s3cret-key", "Basic s3cret-key", "Bearer"):
            sent = {"authorization": given} if given else {}
            for path in (CHAT, "/v1/models", "/v1/generate", "/tokenize", "/v1/other"):
                answer = await client.post(path, json=GOOD, headers=sent)
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/docs", "/redoc", "/openapi.json", "/usage", "/anything", "/health/", "/"):
            assert (await client.get(path)).status_code == 401
        right = {"authorization": "Bearer s3cret-key"}
        assert (await client.get("/openapi.json", headers=right)).status_code == 200
        for path in ("/docs", "/redoc"):  # they would load scripts from elsewhere
            assert (await client.get(path, headers=right)).status_code == 404
        for headers in (right, {"authorization": "bearer s3cret-key"}, {"x-api-key": "s3cret-key"}):
            assert (await client.post(CHAT, json=GOOD, headers=headers)).status_code == 200
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/ready")).status_code == 200
