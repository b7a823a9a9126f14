"""Bounds on schemas: what would stop an engine for minutes is refused by the name of the bound."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.schemas.schema_limits import is_supported_pattern, require_bounded
from agent_server.tool_calling.emulation import one_call
from tests.kit.agent_server import CHAT

USER: dict[str, Any] = {"role": "user", "content": "hi"}


def text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern}


def fields(*schemas: dict[str, Any]) -> dict[str, Any]:
    named = {f"p{number}": schema for number, schema in enumerate(schemas)}
    return {"type": "object", "properties": named}


TOO_LARGE = [
    ({"enum": [f"value {number}" for number in range(100_000)]}, "500 enum values"),
    ({"anyOf": [{"enum": ["a", "b"]} for _ in range(150)] * 2}, "150 alternatives"),
    (fields(*[{"enum": list(range(200))}] * 3), "500 enum values"),
    ({"enum": ["x" * 20_000]}, "15000 enum characters"),
    (fields(*[{}] * 1001), "1000 properties"),
    (fields(*[{"const": number} for number in range(501)]), "500 enum values"),
    (text("^" + "a" * 600 + "$"), "500 characters in a pattern"),
    (fields(*[text("^" + "a" * 400 + "$")] * 6), "2000 characters in patterns"),
    (text("^" + "[a-z]{0,2000}" * 34 + "$"), "1000 repetitions in patterns"),
    (text("^((a{0,30}){0,30}){0,30}$"), "1000 repetitions in patterns"),
    ({"required": [str(number) for number in range(9)], "x": [{"a": 1}] * 20_001}, "20000 values"),
    (text("^a{5,2}$"), "no regular expression"),  # llama.cpp would never come to an end
    (text("(unclosed"), "no regular expression"),
    (text("^[a-$"), "no regular expression"),
    (text("(" * 240 + ")" * 240), None),
]


@pytest.mark.parametrize(("schema", "bound"), TOO_LARGE)
def test_a_schema_beyond_a_bound_is_refused(schema: dict[str, Any], bound: str | None) -> None:
    if bound is None:
        require_bounded([schema])
        return
    with pytest.raises(ValueError, match=bound):
        require_bounded([schema])


async def test_every_api_refuses_a_schema_beyond_the_bounds_and_too_many_values_and_tools(
    http: httpx2.AsyncClient,
) -> None:
    schema = {"enum": [f"value {number}" for number in range(600)]}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    tool = {"name": "look", "parameters": schema}
    chat = {"messages": [USER]}
    claude = {**chat, "model": "terra", "tools": [{"name": "look", "input_schema": schema}]}
    requests: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {**chat, "response_format": wanted}),
        (CHAT, {**chat, "tools": [{"type": "function", "function": tool}]}),
        ("/tokenize", {**chat, "tools": [{"type": "function", "function": tool}]}),
        ("/v1/responses", {"input": "hi", "tools": [{"type": "function", **tool}]}),
        ("/v1/messages", {**claude, "max_tokens": 5}),
        ("/v1/messages/count_tokens", claude),
    ]
    for path, body in requests:
        answer = await http.post(path, json=body)
        assert answer.status_code == 400, path
        assert "at most 500 enum values" in answer.json()["error"]["message"]
    # A body of very many values is refused before it is parsed.
    for content in ("[" + "0," * 60_000 + "0]", "this is, " * 60_000):
        headers = {"content-type": "application/json"}
        answer = await http.post(CHAT, content=content, headers=headers)
        assert answer.status_code == 413
        assert "at most 50000 commas" in answer.json()["error"]["message"]
    tools = [{"type": "function", "function": {"name": f"t{number}"}} for number in range(129)]
    answer = await http.post(CHAT, json={"messages": [USER], "tools": tools})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"
    assert "128" in answer.json()["error"]["message"]


def test_the_schemas_of_real_tools_are_within_the_bounds() -> None:
    parameter = {"type": "string", "description": "which", "enum": ["one", "two", "three"]}
    require_bounded([fields(*[parameter] * 3)] * 40)
    uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    named = r"^(?<year>\d{4})-\p{L}+[^]\u{1F600}\k<year>$"
    require_bounded([fields(text(uuid), text(named), text(r"\d+"), text("^(?=x)y"))])
    # A property may be called as a keyword is.
    require_bounded([{"properties": {"enum": {"type": "string"}, "pattern": {"type": "string"}}}])


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=20))
def test_nonsense_in_place_of_a_schema_is_no_crash(value: Any) -> None:
    keys = ("enum", "properties", "pattern", "anyOf", "$defs", "items")
    with suppress(ValueError):
        require_bounded([dict.fromkeys(keys, value)])


def test_a_tool_whose_pattern_llama_cpp_does_not_know_keeps_the_rest_of_its_schema() -> None:
    parameters = fields(text(r"^\d+$"), text("^[0-9]+$"))
    function = {"name": "look", "parameters": parameters}
    (loose, strict) = one_call([{"type": "function", "function": function}])["properties"][
        "arguments"
    ]["properties"].values()
    assert "pattern" not in loose
    assert loose["maxLength"]
    assert is_supported_pattern(strict["pattern"])
