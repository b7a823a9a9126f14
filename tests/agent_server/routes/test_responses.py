"""/v1/responses, with the official SDK as the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.responses import FunctionToolParam, Response

from agent_server.server_state import ResponseStore, StoredResponse
from storage.usage.api_keys import Key
from tests.kit.agent_server import EngineAddress, agent_client, agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.server_keys import make_keys

pytest_plugins = ("tests.kit.engine",)

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 40}},
        "required": ["city"],
    },
    "strict": True,
}
CALL = (("get_weather", '{"city": "Oslo"}'),)


async def ask(openai: AsyncOpenAI, said: Any = "x", **more: Any) -> Response:
    """The response to an input."""
    create: Any = openai.responses.create
    made: Response = await create(model="terra", input=said, **more)
    return made


async def events_of(openai: AsyncOpenAI, said: Any = "x", **more: Any) -> list[Any]:
    """The events of a streamed response."""
    create: Any = openai.responses.create
    return [event async for event in await create(model="terra", input=said, stream=True, **more)]


@pytest.fixture
async def real(engine: EngineAddress) -> AsyncIterator[AsyncOpenAI]:
    async with (
        agent_server(engine.settings()) as address,
        AsyncOpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client,
    ):
        yield client


async def test_a_text_is_answered(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.cached_tokens = 1
    script.say("Hello you")
    words = "Say hello. " * 20
    made = await ask(
        openai,
        words,
        instructions="Be brief.",
        max_output_tokens=50,
        temperature=0.5,
        top_p=0.9,
        metadata={"a": "b"},
        user="ada",
    )
    assert made.output_text == "Hello you"
    assert (made.object, made.status, made.model) == ("response", "completed", "terra")
    assert made.id.startswith("resp_")
    assert (made.error, made.incomplete_details) == (None, None)
    assert (made.instructions, made.max_output_tokens) == ("Be brief.", 50)
    assert (made.metadata, made.temperature, made.top_p) == ({"a": "b"}, 0.5, 0.9)
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (42, 2)
    assert made.usage.total_tokens == 44
    assert made.usage.input_tokens_details.cached_tokens == 0
    (asked,) = script.requests
    assert asked["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": words},
    ]  # fmt: skip
    assert (asked["max_tokens"], asked["temperature"], asked["top_p"]) == (50, 0.5, 0.9)
    again = await ask(openai, words, instructions="Be brief.")
    assert again.usage is not None
    assert again.usage.input_tokens_details.cached_tokens == 1


async def test_a_cut_answer_is_incomplete_and_a_broken_stream_has_failed(
    openai: AsyncOpenAI, script: ScriptedOpenAI
) -> None:
    script.answer(Answer("half", finish="length"))
    made = await ask(openai, max_output_tokens=1)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    script.cut("half")
    last = (await events_of(openai))[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert "broke off" in last.response.error.message
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(last.response.id)


async def test_the_events_of_a_stream_come_in_order(
    openai: AsyncOpenAI, script: ScriptedOpenAI
) -> None:
    script.answer(Answer("Two words", calls=CALL, reasoning="Hm."))
    events = await events_of(openai, tools=[WEATHER])
    assert [event.type.removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert {event.output_index for event in events if hasattr(event, "output_index")} == {0, 1, 2}
    created, last = events[0], events[-1]
    assert created.type == "response.created"
    assert (created.response.status, created.response.output) == ("in_progress", [])
    assert last.type == "response.completed"
    assert [item.type for item in last.response.output] == ["reasoning", "message", "function_call"]
    assert last.response.output_text == "Two words"
    assert last.response.usage is not None


async def test_the_sdk_assembles_a_stream(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.answer(Answer("Looking.", calls=(*CALL, ("get_weather", '{"city": "Rome"}'))))
    async with openai.responses.stream(model="terra", input="x", tools=[WEATHER]) as stream:
        made = await stream.get_final_response()
    calls = [item for item in made.output if item.type == "function_call"]
    assert made.output_text == "Looking."
    assert [json.loads(call.arguments) for call in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_log_probabilities_come_when_asked(real: AsyncOpenAI, stream: bool) -> None:
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    asked: dict[str, Any] = {"said": "Say hello.", "max_output_tokens": 16, **wanted}
    if stream:
        last = (await events_of(real, **asked))[-1]
        assert last.type in ("response.completed", "response.incomplete")
        made: Response = last.response
    else:
        made = await ask(real, **asked)
    message = made.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs
    assert "".join(entry.token for entry in part.logprobs).startswith(part.text)
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


CHOICES: list[tuple[Any, Any]] = [
    ("none", "none"), ("auto", "auto"), ("required", "required"),
    ({"type": "function", "name": "get_weather"},
     {"type": "function", "function": {"name": "get_weather"}}),
]  # fmt: skip


async def test_tools_and_their_choice_are_translated(
    openai: AsyncOpenAI, script: ScriptedOpenAI
) -> None:
    for choice, sent in CHOICES:
        script.answer(Answer(calls=CALL))
        made = await ask(openai, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
        (call,) = made.output
        assert call.type == "function_call"
        assert (call.call_id, call.name, call.status) == ("call_0", "get_weather", "completed")
        assert json.loads(call.arguments) == {"city": "Oslo"}
        asked = script.requests[-1]
        assert (asked["tool_choice"], asked["parallel_tool_calls"]) == (sent, False)
        assert asked["tools"][0]["function"]["name"] == "get_weather"
        assert asked["tools"][0]["function"]["strict"] is True


async def test_a_response_can_be_continued(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.answer(Answer("Looking.", calls=CALL)).say("It is warm.").say("You are welcome.")
    first = await ask(openai, "How warm is it?", instructions="Old rules.", tools=[WEATHER])
    told = [{"type": "function_call_output", "call_id": "call_0", "output": "17"}]
    second = await ask(openai, told, previous_response_id=first.id, instructions="New rules.")
    await ask(openai, "Thanks.", previous_response_id=second.id)
    roles = [message["role"] for message in script.requests[2]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    rules, asked, called, result = script.requests[1]["messages"]
    assert rules == {"role": "system", "content": "New rules."}
    assert asked == {"role": "user", "content": "How warm is it?"}
    assert called["content"] == "Looking."
    assert called["tool_calls"][0]["id"] == "call_0"
    assert result == {"role": "tool", "tool_call_id": "call_0", "content": "17"}


async def test_items_can_be_sent_back_by_hand(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    script.answer(Answer("Looking.", calls=CALL, reasoning="Hm."))
    first = await ask(openai, tools=[WEATHER], store=False)
    sent: Any = [
        {"role": "developer", "content": "Rules."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "http://example.org/a.png", "detail": "low"},
        ]},
        *first.output,
        {"type": "function_call_output", "call_id": "call_0", "output": [
            {"type": "input_text", "text": "17"}]},
    ]  # fmt: skip
    await ask(openai, sent)
    rules, person, answer, result = script.requests[1]["messages"]
    assert rules == {"role": "system", "content": "Rules."}
    assert [part["type"] for part in person["content"]] == ["text", "image_url"]
    assert (answer["content"], answer["reasoning_content"]) == ("Looking.", "Hm.")
    assert answer["tool_calls"][0]["function"]["name"] == "get_weather"
    assert result["content"] == "17"


async def test_the_form_reaches_the_engine(openai: AsyncOpenAI, script: ScriptedOpenAI) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "name": "mood", "schema": schema}
    effort = {"reasoning": {"effort": "low"}}
    await ask(openai, text={"format": form, "verbosity": "low"}, **effort)
    await ask(openai, text={"format": {"type": "json_object"}})
    first, second = script.requests
    assert first["response_format"]["json_schema"]["schema"] == schema
    assert first["response_format"]["json_schema"]["name"] == "mood"
    assert (first["verbosity"], first["reasoning_effort"]) == ("low", "low")
    assert second["response_format"] == {"type": "json_object"}
    script.fail(400, "This model's maximum context length is 9")
    with pytest.raises(BadRequestError) as failure:
        await ask(openai)
    assert (failure.value.code, failure.value.param) == ("context_length_exceeded", "input")


async def test_a_response_is_kept_until_it_is_deleted_unless_it_is_not_to_be_stored(
    openai: AsyncOpenAI,
) -> None:
    made = await ask(openai)
    assert (await openai.responses.retrieve(made.id)).output_text == made.output_text
    await openai.responses.delete(made.id)
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(made.id)
    with pytest.raises(NotFoundError):
        await openai.responses.delete(made.id)
    with pytest.raises(BadRequestError) as failure:
        await ask(openai, previous_response_id=made.id)
    assert failure.value.code == "previous_response_not_found"
    assert failure.value.param == "previous_response_id"
    made = await ask(openai, store=False)
    assert made.status == "completed"
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(made.id)
    async with openai.responses.stream(model="terra", input="x") as stream:
        made = await stream.get_final_response()
    assert (await openai.responses.retrieve(made.id)).status == "completed"


async def test_a_key_sees_no_responses_of_another(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with agent_client({"upstream": script.url}, None, tmp_path) as http:
        keys = await make_keys(http, tmp_path, Key("irc"), Key("web"))
        irc, web = keys["irc"], keys["web"]
        made = await http.post("/v1/responses", json={"input": "x"}, headers=irc)
        place = f"/v1/responses/{made.json()['id']}"
        for method in ("GET", "DELETE"):
            assert (await http.request(method, place, headers=web)).status_code == 404
        follow = {"input": "x", "previous_response_id": made.json()["id"]}
        assert (await http.post("/v1/responses", json=follow, headers=web)).status_code == 400
        assert (await http.get(place, headers=irc)).status_code == 200


def test_the_store_forgets_what_was_used_longest_ago() -> None:
    store = ResponseStore(most=2)
    for name in ("a", "b"):
        store.save("irc", stored(name))
    assert store.get("irc", "a") is not None
    store.save("irc", stored("c"))
    assert present(store, "abc") == "ac"


def test_the_store_is_bounded_in_bytes() -> None:
    size = stored("a").size
    store = ResponseStore(largest=2 * size)
    for name in ("a", "b", "c"):
        store.save("irc", stored(name))
    assert present(store, "abc") == "bc"
    store.save("irc", stored("d", b"long" * size))
    assert present(store, "bcd") == "bc"
    assert store.delete("irc", "b")
    store.save("irc", stored("e"))
    assert present(store, "ce") == "ce"
    store.save("irc", stored("c"))
    assert present(store, "ce") == "ce"


def present(store: ResponseStore, names: str) -> str:
    """Return those of the names that are stored."""
    found = [name for name in names if store.get("irc", name)]
    return "".join(found)


def stored(name: str, text: bytes = b"") -> StoredResponse:
    return StoredResponse(name, b'{"output":"%s"}' % text, b"[]", "session")
