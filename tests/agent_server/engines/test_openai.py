"""The agent server in front of a scripted upstream: where exact words and errors matter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from storage.usage.api_keys import Key
from tests.kit.agent_server import CHAT, HELLO, agent_client, agent_server, tool
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.plain_openai import plain_openai
from tests.kit.server_keys import bearer, key_table, make_keys, until_status

LONG = {"messages": [{"role": "user", "content": "hello " * 40}]}
LOOKUP = tool("lookup", "word")


@asynccontextmanager
async def client(script: ScriptedOpenAI, **model: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with agent_client({"upstream": script.url, **model}) as http:
        yield http


def events(body: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_calls_nulls_and_pictures_reach_the_upstream_as_sent(script: ScriptedOpenAI) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "lookup", "arguments": '{"word":  "ada"}'},
    }
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "who?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a mathematician"},
        {"role": "user", "content": [{"type": "text", "text": "what?"}, part]},
    ]
    async with client(script) as http:
        body = {"model": "terra", "messages": messages, "tools": [LOOKUP], "tool_choice": "auto"}
        answer = await http.post(CHAT, json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "ok"
    (seen,) = script.requests
    assert seen["messages"] == [{"role": "system", "content": "Be brief."}, *messages[1:]]
    assert seen["tools"] == [LOOKUP]
    assert seen["model"] == "script"
    assert "max_tokens" not in seen
    assert seen["stream"] is True


async def test_a_stream_has_usage_only_when_asked_and_metrics_count_it(
    script: ScriptedOpenAI,
) -> None:
    script.cached_tokens = 1
    async with client(script) as http:
        plain = events((await http.post(CHAT, json={**LONG, "stream": True})).text)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        counted = events((await http.post(CHAT, json={**LONG, **options})).text)
        text = (await http.get("/metrics")).text
    assert not any("usage" in chunk for chunk in plain)
    assert counted[-1]["choices"] == []
    assert counted[-1]["usage"] == {
        "prompt_tokens": 40,
        "completion_tokens": 1,
        "total_tokens": 41,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    assert {chunk["id"] for chunk in counted} == {counted[0]["id"]}
    assert 'terrarium_requests_total{route="/v1/chat/completions",status="200"} 2.0' in text
    whose = 'model="terra",tendril="anonymous"'
    assert f'terrarium_tokens_total{{kind="completion",{whose}}} 2.0' in text
    assert f'terrarium_tokens_total{{kind="cached",{whose}}} 1.0' in text
    assert f"terrarium_first_token_seconds_count{{{whose}}} 2.0" in text


async def test_think_tags_cut_across_chunks_become_reasoning(script: ScriptedOpenAI) -> None:
    pieces = ("<th", "ink>hm", "m</thi", "nk>\n\nYes", ".")
    script.say("", pieces=pieces).say("", pieces=pieces).say("<think>never closed")
    async with client(script) as http:
        whole = (await http.post(CHAT, json=HELLO)).json()["choices"][0]["message"]
        streamed = events((await http.post(CHAT, json={**HELLO, "stream": True})).text)
        unclosed = (await http.post(CHAT, json=HELLO)).json()["choices"][0]["message"]
    assert (whole["content"], whole["reasoning_content"]) == ("Yes.", "hmm")
    deltas = [c["delta"] for chunk in streamed for c in chunk["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == "Yes."
    assert "".join(d.get("reasoning_content") or "" for d in deltas) == "hmm"
    assert (unclosed["content"], unclosed["reasoning_content"]) == ("", "never closed")


ERRORS = [
    (400, "This model's maximum context length is 9", 400, "context_length_exceeded"),
    (400, "bad grammar", 400, None),
    (401, "who are you", 503, "engine_misconfigured"),
    (402, "Insufficient credits", 503, "engine_misconfigured"),
    (429, "insufficient_quota", 503, "engine_misconfigured"),
    (404, "no such model", 503, "engine_misconfigured"),
    (429, "slow down", 429, "rate_limit_exceeded"),
    (500, "secret internals", 503, "engine_unavailable"),
    (504, "too slow", 504, "engine_timeout"),
]


@pytest.mark.parametrize("stream", [True, False])
async def test_upstream_errors_come_as_openai_errors(script: ScriptedOpenAI, stream: bool) -> None:
    async with client(script) as http:
        for status, message, wanted, code in ERRORS:
            script.fail(status, message, headers={"retry-after": "7"})
            answer = await http.post(CHAT, json={**HELLO, "stream": stream})
            assert answer.status_code == wanted
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["code"] == code
            assert "internals" not in error["message"]
            assert answer.headers.get("retry-after") == {429: "7", 503: "1"}.get(wanted)
            assert (await http.post(CHAT, json=HELLO)).status_code == 200


@pytest.mark.parametrize(
    ("how", "headers", "status"),
    [
        ({"stream": True}, {}, 499),
        ({"stream": True}, {"x-cuts-answers": "yes"}, 200),
        ({"stream": False}, {"x-cuts-answers": "yes"}, 499),
        ({"max_tokens": 9}, {}, 499),
    ],
)
async def test_a_client_that_leaves_is_left_by_the_upstream_request_too(
    script: ScriptedOpenAI, how: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    script.hang("a beginning")
    async with client(script) as http:
        asking = asyncio.ensure_future(http.post(CHAT, json={**HELLO, **how}, headers=headers))
        await script.arrived()
        asking.cancel()
        await script.client_gone()
        metrics = (await http.get("/metrics")).text
        used = (await http.get("/usage")).json()["total"]
    counted = f'terrarium_requests_total{{route="/v1/chat/completions",status="{status}"}} 1.0'
    assert counted in metrics
    assert used["completion_tokens"] or how == {"stream": False}


async def test_a_short_answer_is_asked_for_whole_unless_streamed(script: ScriptedOpenAI) -> None:
    few = {"max_tokens": 20}
    async with client(script, timeout=20) as http:
        for how in (few, {"max_tokens": 21}, {}, {**few, "stream": True}):
            assert (await http.post(CHAT, json={**HELLO, **how})).status_code == 200
        metrics = (await http.get("/metrics")).text
    assert [body["stream"] for body in script.requests] == [False, True, True, True]
    assert "stream_options" not in script.requests[0]
    first = 'terrarium_first_token_seconds_count{model="terra",tendril="anonymous"} 3.0'
    assert first in metrics


async def test_a_session_stays_on_one_upstream_and_moves_when_it_is_gone() -> None:
    async with ScriptedOpenAI() as one, ScriptedOpenAI() as two:
        urls = f"{one.url}/v1, {two.url}/"
        async with (
            agent_server({"upstream": urls}) as url,
            httpx2.AsyncClient(timeout=PATIENCE) as http,
        ):
            for session in map(str, range(40)):  # so many that some go to each
                headers, named = {"x-session-id": session}, HELLO | {"prompt_cache_key": session}
                await http.post(f"{url}{CHAT}", json=HELLO, headers=headers)
                await http.post(f"{url}{CHAT}", json=named)
    assert len(one.requests) + len(two.requests) == 80
    assert one.requests
    assert two.requests
    assert len(one.requests) % 2 == len(two.requests) % 2 == 0


async def test_an_upstream_that_only_chats_and_never_streams_is_enough() -> None:
    function = {"name": "look", "arguments": '{"at": "sky"}'}
    called = {"id": "call_1", "type": "function", "function": function}
    message = {"role": "assistant", "content": "Hi.", "tool_calls": [called]}
    async with plain_openai(message) as upstream, agent_client({"upstream": upstream}) as http:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        whole = (await http.post("/v1/chat/completions", json=body)).json()
        assert whole["choices"][0]["message"]["content"] == "Hi."
        assert whole["choices"][0]["message"]["tool_calls"] == [called]
        assert whole["usage"]["total_tokens"] == 7
        stream = await http.post("/v1/chat/completions", json=body | {"stream": True})
        assert stream.text.endswith("data: [DONE]\n\n")
        counted = (await http.post("/tokenize", json=body)).json()
        assert counted == {"count": 13, "max_model_len": 32_768, "tokens": [], "estimated": True}


async def test_tokens_are_counted_by_the_upstream_or_estimated(script: ScriptedOpenAI) -> None:
    script.max_model_len = 99
    image = {"type": "base64", "media_type": "image/png", "data": "A" * 40_000}
    pictured = [{"type": "text", "text": "hello " * 100}, {"type": "image", "source": image}]
    async with client(script) as http:
        answer = await http.post("/tokenize", json={"prompt": "one two three"})
        assert answer.json() == {"count": 3, "max_model_len": 99, "tokens": [0, 1, 2]}
        script.can_count = False
        for content in ("hello " * 100, pictured):
            body = {"model": "terra", "messages": [{"role": "user", "content": content}]}
            counted = (await http.post("/v1/messages/count_tokens", json=body)).json()
            assert counted["estimated"] is True
            assert 100 < counted["input_tokens"] < 200
        counted = (await http.post("/tokenize", json={"prompt": "hello " * 100})).json()
        assert (counted["estimated"], counted["tokens"]) == (True, [])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("wanted", "words"), [({"n": 2}, "ignores n"), ({"logprobs": True}, "no logprobs")]
)
async def test_an_ignored_field_is_told(stream: bool, wanted: dict[str, Any], words: str) -> None:
    async with (
        plain_openai({"role": "assistant", "content": "Hi."}) as upstream,
        agent_client({"upstream": upstream}) as http,
    ):
        answer = await http.post(CHAT, json=HELLO | wanted | {"stream": stream})
        assert words in answer.text
        if stream:
            assert '"code":"unsupported"' in answer.text.splitlines()[-2]
        else:
            assert answer.status_code == 501


async def test_no_issued_key_has_an_upstream_of_this_network_open_an_address(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    def seen(url: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": url}}
        return {"messages": [{"role": "user", "content": [part]}]}

    keys = {"admin_key": "master"}
    async with agent_client({"upstream": script.url}, keys, tmp_path) as http:
        async with key_table(tmp_path) as table:
            alice = bearer(await table.create(Key("alice")))
        await until_status(http, 200, alice)
        inside, data = seen("http://192.168.0.1/secret.png"), seen("data:image/png;base64,AA==")
        for body, headers, status in (
            (inside, alice, 400),
            (data, alice, 200),
            (inside, bearer("master"), 200),
        ):
            answer = await http.post(CHAT, json=body, headers=headers)
            assert answer.status_code == status
        assert len(script.requests) == 2


async def test_only_vllm_gets_a_salt_for_each_key(script: ScriptedOpenAI, tmp_path: Path) -> None:
    script.cached_tokens = 1
    for owner in ("vllm", "script"):
        script.owner = owner
        script.requests.clear()
        data = tmp_path / owner
        async with agent_client({"upstream": script.url}, {}, data) as http:
            made = await make_keys(http, data, Key("ada"), Key("bob"))
            cached = []
            for name in ("ada", "ada", "bob"):
                answer = (await http.post(CHAT, json=HELLO, headers=made[name])).json()
                cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        salts = [body.get("cache_salt") for body in script.requests]
        if owner == "vllm":
            assert salts[0] == salts[1] != salts[2]
            assert all(len(salt or "") >= 43 for salt in salts)
            assert cached == [1, 1, 1]
        else:
            assert salts == [None, None, None]
            assert cached == [0, 0, 0]


async def test_the_default_temperature_is_sent_unless_one_is_named(script: ScriptedOpenAI) -> None:
    other = {"upstream": script.url}
    async with agent_client({**other, "temperature": 0.2, "models": {"other": other}}) as http:
        for named in ({}, {"temperature": 0}, {"temperature": None}, {"model": "other"}):
            assert (await http.post(CHAT, json=HELLO | named)).status_code == 200
        await http.post("/v1/completions", json={"prompt": "The sky is"})
    temperatures = [seen.get("temperature") for seen in script.requests]
    assert temperatures == [0.2, 0, 0.2, None, 0.2]
