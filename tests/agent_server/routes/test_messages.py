"""Anthropic's Messages API, with its official SDK as the client."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from anthropic import (
    APIStatusError,
    AsyncAnthropic,
    AuthenticationError,
    NotFoundError,
)
from anthropic.types import Message, MessageParam, ToolParam

from tests.kit.agent_server import EngineAddress, agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI

pytest_plugins = ("tests.kit.engine",)

HELLO: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}},
        "required": ["city"],
    },
}
PICTURE = "iVBORw0KGgo="


async def ask(claude: AsyncAnthropic, **more: Any) -> Message:
    """The answer to a short question."""
    create: Any = claude.messages.create
    made: Message = await create(model="terra", **{"max_tokens": 9, "messages": HELLO, **more})
    return made


async def ask_streamed(claude: AsyncAnthropic, **more: Any) -> Message:
    """The answer to a short question, as the SDK assembles it from its events."""
    stream: Any = claude.messages.stream
    asked = {"max_tokens": 9, "messages": HELLO, **more}
    async with stream(model="terra", **asked) as events:
        made: Message = await events.get_final_message()
    return made


async def test_a_message_has_text_a_reason_and_usage(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    script.cached_tokens = 1
    script.say("first").say("Hello you")
    hello: list[MessageParam] = [{"role": "user", "content": "Hello there. " * 20}]
    brief = "Be brief."
    await ask(claude, messages=hello, system=brief)
    script.requests.clear()
    message = await ask(
        claude,
        max_tokens=50,
        messages=hello,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["X"],
        metadata={"user_id": "u"},
        extra_body={"temperature": 0.5, "top_k": 3, "top_p": 0.9},
    )
    assert (message.type, message.role, message.model) == ("message", "assistant", "terra")
    assert message.id.startswith("msg_")
    assert [(block.type, getattr(block, "text", "")) for block in message.content] == [
        ("text", "Hello you")
    ]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens == 41
    assert message.usage.cache_read_input_tokens == 1
    assert message.usage.output_tokens == 2
    (asked,) = script.requests
    assert asked["messages"] == [{"role": "system", "content": brief}, *hello]
    assert (asked["max_tokens"], asked["stop"]) == (50, ["X"])
    assert (asked["temperature"], asked["top_k"], asked["top_p"]) == (0.5, 3, 0.9)
    assert "metadata" not in asked


async def test_the_reason_of_the_end_has_the_name_of_this_api(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    for answer, reason in (
        (Answer("cut", finish="length"), "max_tokens"),
        (Answer("no", finish="content_filter"), "refusal"),
        (Answer("till here", stop_reason="END"), "stop_sequence"),
    ):
        script.answer(answer).answer(answer)
        whole, streamed = await ask(claude), await ask_streamed(claude)
        assert whole.stop_reason == streamed.stop_reason == reason
        assert whole.stop_sequence == streamed.stop_sequence == answer.stop_reason


async def test_the_events_of_a_stream_come_in_order(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.answer(Answer("Two words", calls=(("get_weather", '{"city": "Oslo"}'),)))
    body = {"model": "terra", "max_tokens": 9, "messages": HELLO, "stream": True,
            "tools": [WEATHER]}  # fmt: skip
    answer = await http.post("/v1/messages", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    names, events = [], []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        names.append(name.removeprefix("event: "))
        events.append(json.loads(data.removeprefix("data: ")))
    assert [event["type"] for event in events] == names
    assert names == [
        "message_start", "ping",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert [event["index"] for event in events if "index" in event] == [0] * 4 + [1] * 4
    assert events[0]["message"]["content"] == []
    assert events[6]["content_block"] == {
        "type": "tool_use", "id": "call_0", "name": "get_weather", "input": {},
    }  # fmt: skip
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == 5


async def test_the_sdk_assembles_a_stream(claude: AsyncAnthropic, script: ScriptedOpenAI) -> None:
    calls = (("get_weather", '{"city": "Oslo"}'), ("get_weather", '{"city": "Rome"}'))
    script.answer(Answer("Looking.", calls=calls, reasoning="Two cities."))
    thinks = {"type": "enabled", "budget_tokens": 1024}
    message = await ask_streamed(claude, max_tokens=2000, tools=[WEATHER], thinking=thinks)
    assert [block.type for block in message.content] == [
        "thinking", "text", "tool_use", "tool_use",
    ]  # fmt: skip
    thinking, text, *uses = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Two cities."
    assert text.type == "text"
    assert text.text == "Looking."
    assert [use.input for use in uses if use.type == "tool_use"] == [
        {"city": "Oslo"}, {"city": "Rome"},
    ]  # fmt: skip
    assert message.usage.input_tokens == 2


async def test_thoughts_stay_out_unless_they_are_asked_for(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for thinking in (None, {"type": "disabled"}, {"type": "adaptive", "display": "omitted"}):
        for stream in (True, False):
            script.answer(Answer("Hi", reasoning="secret"))
            body = {"model": "terra", "max_tokens": 9, "messages": HELLO, "thinking": thinking,
                    "stream": stream}  # fmt: skip
            answer = await http.post("/v1/messages", json=body)
            assert answer.status_code == 200
            assert "Hi" in answer.text
            assert "secret" not in answer.text
            assert "thinking" not in answer.text
    script.answer(Answer("Hi", reasoning="Greet."))
    asked = {"model": "terra", "max_tokens": 9, "messages": HELLO, "thinking": {"type": "adaptive"}}
    first = (await http.post("/v1/messages", json=asked)).json()["content"][0]
    assert (first["type"], first["thinking"]) == ("thinking", "Greet.")


CHOICES: list[tuple[Any, Any, bool | None]] = [
    ({"type": "auto"}, "auto", None),
    ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
    ({"type": "none"}, "none", None),
    ({"type": "tool", "name": "get_weather"},
     {"type": "function", "function": {"name": "get_weather"}}, None),
]  # fmt: skip


async def test_the_choice_of_a_tool_is_translated(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    for choice, sent, parallel in CHOICES:
        script.call("get_weather", {"city": "Oslo"})
        message = await ask(claude, tools=[WEATHER], tool_choice=choice)
        assert message.stop_reason == "tool_use"
        (use,) = message.content
        assert use.type == "tool_use"
        assert (use.id, use.name, use.input) == ("call_0", "get_weather", {"city": "Oslo"})
        asked = script.requests[-1]
        assert asked["tool_choice"] == sent
        assert asked.get("parallel_tool_calls") is parallel
        assert asked["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]


async def test_an_answer_and_the_results_of_its_calls_go_back(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    script.answer(Answer("Looking.", calls=(("get_weather", '{"city": "Oslo"}'),)))
    script.say("It is warm.")
    first = await ask(claude, tools=[WEATHER])
    await ask(
        claude,
        tools=[WEATHER],
        messages=[
            *HELLO,
            first.to_param(),
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and now?"},
                    {"type": "tool_result", "tool_use_id": "call_0", "is_error": True,
                     "content": [{"type": "text", "text": "no such city"}]},
                ],
            },
        ],
    )  # fmt: skip
    _, assistant, result, person = script.requests[1]["messages"]
    assert assistant["content"] == "Looking."
    assert assistant["tool_calls"][0]["id"] == "call_0"
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert result == {"role": "tool", "tool_call_id": "call_0", "content": "Error: no such city"}
    assert person["content"] == [{"type": "text", "text": "and now?"}]


async def test_pictures_schemas_effort_and_earlier_thoughts_reach_the_engine(
    claude: AsyncAnthropic, script: ScriptedOpenAI
) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    await ask(
        claude,
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        messages=[
            {"role": "user", "content": [
                {"type": "image", "source": {
                    "type": "base64", "media_type": "image/png", "data": PICTURE}},
                {"type": "image", "source": {"type": "url", "url": "http://example.org/a.png"}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "Nice."},
            ]},
            {"role": "user", "content": "more"},
        ],
    )  # fmt: skip
    (asked,) = script.requests
    pictures, answer, _ = asked["messages"]
    assert [part["image_url"]["url"] for part in pictures["content"]] == [
        f"data:image/png;base64,{PICTURE}", "http://example.org/a.png",
    ]  # fmt: skip
    assert (answer["content"], answer["reasoning_content"]) == ("Nice.", "hm")
    assert asked["response_format"]["json_schema"]["schema"] == schema
    assert asked["reasoning_effort"] == "low"


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
            await ask(claude)
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
    # Arguments of a call that are not an object are no answer.
    script.call("get_weather", '{"city": ')
    with pytest.raises(APIStatusError) as failure:
        await ask(claude, tools=[WEATHER])
    assert failure.value.status_code == 503


async def test_the_key_may_come_as_this_api_sends_it(script: ScriptedOpenAI) -> None:
    async with agent_server({"upstream": script.url}, {"admin_key": "s3cret"}) as url:
        async with AsyncAnthropic(base_url=url, api_key="s3cret", max_retries=0) as client:
            await ask(client)
        async with AsyncAnthropic(base_url=url, api_key="wrong", max_retries=0) as client:
            with pytest.raises(AuthenticationError) as failure:
                await ask(client)
        assert failure.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]


async def test_the_tokens_of_a_conversation_are_counted(engine: EngineAddress) -> None:
    asked: Any = {"messages": HELLO, "system": "Be brief.", "tools": [WEATHER]}
    async with (
        agent_server(engine.settings()) as url,
        AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as real,
    ):
        counted = await real.messages.count_tokens(model="terra", **asked)
        usage = (await ask(real, **asked, max_tokens=1)).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert usage.output_tokens == 1
