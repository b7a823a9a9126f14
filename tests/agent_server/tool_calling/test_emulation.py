"""Tool calls made by the server, seen from both sides: the client's and the model's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.kit.agent_server import CHAT, agent_client, tool
from tests.kit.openai_script import Answer, ScriptedOpenAI

USAGE = {"stream": True, "stream_options": {"include_usage": True}}


ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "who is ada?"}],
    "tools": [tool("lookup", "word"), tool("look", "word")],
}
CALL = '{"name": "lookup", "arguments": {"word": "ada"}}'


@pytest.fixture
async def http(script: ScriptedOpenAI) -> AsyncIterator[httpx2.AsyncClient]:
    model = {"upstream": script.url, "tools": "constrained"}
    async with agent_client(model) as client:
        yield client


def events(body: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(chunks: list[Any]) -> str:
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_the_model_is_shown_the_tools_in_words_unless_the_choice_is_none(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.say("Nobody.").say(CALL)
    await http.post(CHAT, json=ASK)
    answer = await http.post(CHAT, json={**ASK, "tool_choice": "none"})
    assert answer.json()["choices"][0]["message"]["content"] == CALL
    seen, hidden = script.requests
    assert hidden["messages"] == ASK["messages"]
    assert not {"tools", "tool_choice", "response_format"} & seen.keys()
    system, user = seen["messages"]
    assert system["role"] == "system"
    assert '"name": "lookup", "description": "does lookup"' in system["content"]
    assert user == ASK["messages"][0]


async def test_a_model_too_small_refuses_a_free_choice_of_tools(script: ScriptedOpenAI) -> None:
    model = {"upstream": script.url, "tools": "forced"}
    async with agent_client(model) as http:
        script.say(CALL).say("Nobody.")
        free = await http.post(CHAT, json=ASK)
        forced = (await http.post(CHAT, json=ASK | {"tool_choice": "required"})).json()
        without = (await http.post(CHAT, json=ASK | {"tool_choice": "none"})).json()
    problem = free.json()["error"]
    assert (free.status_code, problem["param"]) == (400, "tool_choice")
    assert '"required"' in problem["message"]
    first, second = script.requests
    assert '"name": "lookup"' in first["messages"][0]["content"]
    [call] = forced["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "lookup"
    assert without["choices"][0]["message"]["content"] == "Nobody."
    assert second["messages"] == ASK["messages"]


async def test_a_model_too_small_to_choose_answers_in_words_after_the_result_of_a_tool(
    script: ScriptedOpenAI,
) -> None:
    function = {"name": "lookup", "arguments": '{"word": "ada"}'}
    turn = [
        *ASK["messages"],
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a person"},
    ]
    later = [*turn, {"role": "assistant", "content": "Ada is a person."}, *ASK["messages"]]
    async with agent_client({"upstream": script.url, "tools": "forced"}) as http:
        script.say("Ada is a person.")
        answer = (await http.post(CHAT, json=ASK | {"messages": turn})).json()
        refused = await http.post(CHAT, json=ASK | {"messages": later})
    assert answer["choices"][0]["message"]["content"] == "Ada is a person."
    (seen,) = script.requests
    assert not {"tools", "tool_choice"} & seen.keys()
    assert "a person" in seen["messages"][-1]["content"]
    assert refused.status_code == 400


async def test_an_alias_goes_on_to_a_model_that_can_choose_tools(script: ScriptedOpenAI) -> None:
    model = {
        "upstream": script.url,
        "tools": "forced",
        "models": {"big": {"upstream": script.url}},
        "aliases": {"any": ["terra", "big"]},
    }
    async with agent_client(model) as http:
        script.call("lookup", {"word": "ada"})
        answer = (await http.post(CHAT, json=ASK | {"model": "any"})).json()
    assert answer["model"] == "big"
    assert answer["choices"][0]["message"]["tool_calls"]


async def test_a_call_is_asked_again_with_its_schema(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.hang('{ "name" : "lookup", oops').say(CALL)
    answer = (await http.post(CHAT, json=ASK)).json()
    await script.client_gone()
    first, second = script.requests
    assert first["messages"] == second["messages"]
    schema = second["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["name"] == {"const": "lookup"}
    assert schema["properties"]["arguments"]["properties"]["word"]["maxLength"] > 0
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "lookup", "arguments": '{"word": "ada"}'}
    # The usage adds up both.
    script.hang('{"name": "lookup", ').say(CALL)
    usage = events((await http.post(CHAT, json={**ASK, **USAGE})).text)[-1]["usage"]
    once = (await http.post(CHAT, json=ASK)).json()["usage"]["prompt_tokens"]
    assert usage["prompt_tokens"] == 2 * once
    assert usage["completion_tokens"] == 2 + len(CALL.split())


async def test_a_list_becomes_several_calls_unless_parallel_calls_are_off(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.say(f"```json\n[{CALL}").say(f"[{CALL}, {CALL.replace('lookup', 'look')}]")
    chunks = events((await http.post(CHAT, json={**ASK, "stream": True})).text)
    deltas = [c["delta"] for chunk in chunks for c in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    begun = [call for call in calls if "id" in call]
    assert [(call["index"], call["function"]["name"]) for call in begun] == [
        (0, "lookup"),
        (1, "look"),
    ]
    assert len({call["id"] for call in begun}) == 2
    for index in (0, 1):
        parts = [call["function"]["arguments"] for call in calls if call["index"] == index]
        assert json.loads("".join(parts)) == json.loads(CALL)["arguments"]
    script.say(f"[{CALL}]").say(CALL)
    answer = await http.post(CHAT, json={**ASK, "parallel_tool_calls": False})
    assert len(answer.json()["choices"][0]["message"]["tool_calls"]) == 1
    schemas = [script.requests[n]["response_format"]["json_schema"]["schema"] for n in (1, 3)]
    assert [schema["type"] for schema in schemas] == ["array", "object"]


NO_CALLS = [
    "Ada was a mathematician.",
    '{"name": "unknown", "age": 7}',
    f"Like this:\n```json\n{CALL}\n```",
    f"> {CALL}",
    '{"nam',
    '[1, 2, {"name": "lookup"}]',
    "```python\nprint()\n```",
    '"name"',
]


async def test_what_is_not_a_call_arrives_unchanged(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for text in NO_CALLS:
        script.say(text, pieces=tuple(text)).say(text)
        streamed = events((await http.post(CHAT, json={**ASK, "stream": True})).text)
        whole = (await http.post(CHAT, json=ASK)).json()["choices"][0]
        assert text_of(streamed) == whole["message"]["content"] == text
        assert whole["finish_reason"] == "stop"
        assert len(script.requests) == 2
        script.requests.clear()


async def test_a_call_of_a_tool_that_does_not_exist_is_the_clients_to_answer(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    call = '{"name": "sing", "arguments": {"song": "la"}}'
    script.say(call).say(call)
    message = (await http.post(CHAT, json=ASK)).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "sing", "arguments": '{"song": "la"}'}


async def test_a_call_that_stands_in_the_messages_is_a_quotation(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    for message in (
        {"role": "user", "content": f"say exactly {CALL} please"},
        {"role": "tool", "tool_call_id": "1", "content": f"<page> {CALL}"},
    ):
        script.say(CALL)
        body = {**ASK, "messages": [*ASK["messages"], message]}
        choice = (await http.post(CHAT, json=body)).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")
    # What the model itself has called before, it may call again.
    function = {"name": "lookup", "arguments": '{"word": "ada"}'}
    made = {"id": "1", "type": "function", "function": function}
    earlier = [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "1", "content": "nothing"},
    ]
    script.say(CALL).say(CALL)
    answer = await http.post(CHAT, json={**ASK, "messages": [*ASK["messages"], *earlier]})
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (f"Let me look.\n<tool_call>\n{CALL}\n</tool_call>", '{"word": "ada"}'),
        ("{\"name\": \"lookup\", 'arguments': {'word': 'ada',}}", '{"word": "ada"}'),
        ('{"name": "lookup", "args', '{"name": "lookup", "args'),
    ],
)
async def test_an_engine_that_does_not_follow_the_schema_calls_all_the_same(
    http: httpx2.AsyncClient, script: ScriptedOpenAI, text: str, arguments: str
) -> None:
    script.say(text).say(text)
    choice = (await http.post(CHAT, json=ASK)).json()["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "lookup", "arguments": arguments}
    assert choice["finish_reason"] == "tool_calls"
    assert (choice["message"]["content"] or "") in ("", "Let me look.")


async def test_thoughts_anywhere_but_in_code_are_kept_apart_and_no_call_in_them_is_made(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    text = f"Yes, `<think>` it is.<think>or\n{CALL}\n</think> So."
    script.say(text, pieces=tuple(text))
    message = (await http.post(CHAT, json=ASK)).json()["choices"][0]["message"]
    assert message["content"] == "Yes, `<think>` it is. So."
    assert message["reasoning_content"] == f"or\n{CALL}\n"
    script.say(f"<think>hm</think>\n{CALL}").say(
        '{"name": "lookup", "arguments": {"word": "<think>"}}'
    )
    message = (await http.post(CHAT, json=ASK)).json()["choices"][0]["message"]
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"][0]["function"]["arguments"] == '{"word": "<think>"}'


async def test_plain_text_streams_at_once(http: httpx2.AsyncClient, script: ScriptedOpenAI) -> None:
    script.hang("Ada was")
    seen = ""
    async with http.stream("POST", CHAT, json={**ASK, "stream": True}) as response:
        async for line in response.aiter_lines():
            seen += line
            if '" was"' in line:
                break
    assert '"Ada"' in seen
    await script.client_gone()


async def test_words_before_a_call_stay(http: httpx2.AsyncClient, script: ScriptedOpenAI) -> None:
    script.hang("I shall look.\n\n" + CALL[:20]).say(CALL)
    whole = (await http.post(CHAT, json=ASK)).json()["choices"][0]
    script.hang("I shall look.\n\n" + CALL[:20]).say(CALL)
    chunks = events((await http.post(CHAT, json={**ASK, **USAGE})).text)
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"].rstrip() == text_of(chunks).rstrip() == "I shall look."
    [call] = whole["message"]["tool_calls"]
    assert call["function"] == {"name": "lookup", "arguments": '{"word": "ada"}'}


async def test_required_and_named_choices_are_held_to_the_schema_at_once(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.say(CALL).say(CALL)
    named = {"type": "function", "function": {"name": "lookup"}}
    for choice in ("required", named):
        answer = await http.post(CHAT, json={**ASK, "tool_choice": choice})
        assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
    any_of, one = (r["response_format"]["json_schema"]["schema"] for r in script.requests)
    assert [s["properties"]["name"]["const"] for s in any_of["anyOf"]] == ["lookup", "look"]
    assert one["properties"]["name"]["const"] == "lookup"
    # A call cut by the token limit is no call.
    script.answer(Answer('{"name": "lookup", "argu', finish="length"))
    answer = await http.post(CHAT, json={**ASK, "tool_choice": "required"})
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == ""
    assert "tool_calls" not in choice["message"]


async def test_arguments_stream_while_they_are_written(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    script.answer(Answer('{"name": "lookup", "arguments": {"name": "ad', hang=True))
    body = {**ASK, "tool_choice": "required", "stream": True}
    async with http.stream("POST", CHAT, json=body) as response:
        async for line in response.aiter_lines():
            if "ad" in line.partition('"arguments":')[2]:
                break
    await script.client_gone()


async def test_earlier_calls_and_results_are_told_in_plain_messages(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    def called(number: str, word: str) -> dict[str, Any]:
        function = {"name": "lookup", "arguments": json.dumps({"word": word})}
        return {"id": number, "type": "function", "function": function}

    calls = [called("1", "ada"), called("2", "bob")]
    messages = [
        {"role": "system", "content": "Be brief."},
        *ASK["messages"],
        {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "a mathematician"},
        {"role": "tool", "tool_call_id": "2", "content": "nobody"},
    ]
    await http.post(CHAT, json={**ASK, "messages": messages})
    system, user, assistant, results = script.requests[0]["messages"]
    assert system["content"].startswith("Be brief.\n\nYou can use these tools:")
    assert user == ASK["messages"][0]
    written = assistant["content"].removeprefix("Let me see.\n")
    assert json.loads(written)[1] == {"name": "lookup", "arguments": {"word": "bob"}}
    assert results == {
        "role": "user",
        "content": "Result of lookup:\na mathematician\n\nResult of lookup:\nnobody",
    }


async def test_an_answer_schema_and_tools_go_together(
    http: httpx2.AsyncClient, script: ScriptedOpenAI
) -> None:
    wanted = {"type": "object", "properties": {"age": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": wanted}}
    script.say('{"age": 36}')
    answer = await http.post(CHAT, json={**ASK, "response_format": form})
    assert answer.json()["choices"][0]["message"]["content"] == '{"age": 36}'
    schema = script.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["anyOf"][1] == wanted
    answer = await http.post(CHAT, json={**ASK, "n": 2})  # but not tools and several choices
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "n"
