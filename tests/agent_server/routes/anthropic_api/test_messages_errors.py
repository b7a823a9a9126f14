"""What the Messages API says when it cannot answer, as the official SDK hears it."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from anthropic import APIStatusError, AsyncAnthropic, AuthenticationError, NotFoundError

from tests.kit.agent_server import agent_server
from tests.kit.messages import HELLO, WEATHER
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.scripted_server",)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
     "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image"}]}]}]},
     "messages[0].content[0]"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
    ({"tools": [WEATHER, WEATHER]}, "same name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"thinking": {"type": "between_tools"}}, "thinking"),
    ({"container": "c"}, "container"),
    ({"temperature": 1.5}, "temperature"),
    ({"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop_sequences"),
    ({"max_token": 5}, "max_token"),
]  # fmt: skip


async def test_a_bad_request_is_refused_in_the_shape_of_this_api(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    good = {"model": "terra", "max_tokens": 9, "messages": HELLO}
    for body, named in BAD:
        answer = await http.post("/v1/messages", json={**good, **body})
        assert answer.status_code == 400, body
        assert answer.json()["type"] == "error"
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert named in answer.json()["error"]["message"]
        assert script.requests == []


async def test_the_sdk_knows_our_errors(claude: AsyncAnthropic, script: ScriptedOpenAI) -> None:
    with pytest.raises(NotFoundError) as missing:
        await claude.messages.create(model="claude", max_tokens=9, messages=HELLO)
    assert missing.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": missing.value.body["error"]["message"]},  # type: ignore[index]
    }
    for status, ours, kind in (
        (429, 429, "rate_limit_error"),
        (500, 503, "overloaded_error"),
        (504, 504, "timeout_error"),
        (400, 400, "invalid_request_error"),
    ):
        script.fail(status, "broken")
        with pytest.raises(APIStatusError) as failure:
            await claude.messages.create(model="terra", max_tokens=9, messages=HELLO)
        assert failure.value.status_code == ours
        assert failure.value.body["error"]["type"] == kind  # type: ignore[index]
    assert (await claude.messages.with_raw_response.create(
        model="terra", max_tokens=9, messages=HELLO)).headers["x-request-id"]  # fmt: skip


async def test_a_stream_that_breaks_ends_with_an_error_event(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    script.cut("half an")
    async with claude.messages.stream(model="terra", max_tokens=9, messages=HELLO) as stream:
        with pytest.raises(APIStatusError) as failure:
            await stream.until_done()
        assert stream.current_message_snapshot.content[0].text == "half an"  # type: ignore[union-attr]
    assert failure.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]


async def test_arguments_that_are_not_an_object_are_no_answer(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    script.call("get_weather", '{"city": ')
    with pytest.raises(APIStatusError) as failure:
        await claude.messages.create(model="terra", max_tokens=9, messages=HELLO, tools=[WEATHER])
    assert failure.value.status_code == 503


async def test_the_key_may_come_as_this_api_sends_it(script: ScriptedOpenAI) -> None:
    async with agent_server({"upstream": script.url}, {"admin_key": "s3cret"}) as url:
        async with AsyncAnthropic(base_url=url, api_key="s3cret", max_retries=0) as client:
            await client.messages.create(model="terra", max_tokens=9, messages=HELLO)
        async with AsyncAnthropic(base_url=url, auth_token="s3cret", max_retries=0) as client:
            await client.messages.create(model="terra", max_tokens=9, messages=HELLO)
        async with AsyncAnthropic(base_url=url, api_key="wrong", max_retries=0) as client:
            with pytest.raises(AuthenticationError) as failure:
                await client.messages.create(model="terra", max_tokens=9, messages=HELLO)
        assert failure.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
