"""The JSON schemas that constrain tool calls, made from the tools' own schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.schemas.schema_limits import is_supported_pattern

MAX_TEXT_LENGTH = 1000
"""Maximum length of a string whose schema sets none: without a limit a small model may never end
it."""

MAX_CALLS = 8
"""Maximum number of calls in one list."""


def one_call(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of `{"name", "arguments"}` for any one of `tools`."""
    definitions: dict[str, Any] = {}
    calls = []
    for function in (tool["function"] for tool in tools):
        name = function["name"]
        wanted = function.get("parameters") or {"type": "object", "properties": {}}
        arguments = _limit_strings(wanted, name, definitions)
        if arguments.get("properties"):  # a small model would invent more of them
            arguments.setdefault("additionalProperties", False)
        call = {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        calls.append(call)
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": definitions} if definitions else schema


def many_calls(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of a list of calls of `tools`."""
    item = one_call(tools)
    definitions = item.pop("$defs", None)
    schema = {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_CALLS}
    return {**schema, "$defs": definitions} if definitions else schema


def any_of(call: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of either a call or the answer that a client wants."""
    definitions = {**call.get("$defs", {})}
    wanted = _limit_strings(answer, "answer", definitions)
    alone = {key: value for key, value in call.items() if key != "$defs"}
    schema = {"anyOf": [alone, wanted]}
    return {**schema, "$defs": definitions} if definitions else schema


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `response_format` that constrains an answer to `schema`."""
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _limit_strings(schema: Any, owner: str, definitions: dict[str, Any]) -> Any:
    """Copy a schema: its definitions move to `definitions`, free strings get a limit."""
    if isinstance(schema, list):
        return [_limit_strings(item, owner, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # References are resolved from the root of the whole schema, so definitions have to be there;
    # the owner's name keeps those of two tools apart.
    for group in ("$defs", "definitions"):
        for name, inner in (schema.get(group) or {}).items():
            definitions[f"{owner}.{name}"] = _limit_strings(inner, owner, definitions)
    copy = {
        key: _inner(key, value, owner, definitions)
        for key, value in schema.items()
        if key not in ("$defs", "definitions", "$schema")
        # For one pattern that it does not support, llama.cpp silently ignores the whole schema.
        and not (key == "pattern" and isinstance(value, str) and not is_supported_pattern(value))
    }
    limits = ("maxLength", "enum", "const", "pattern", "format")
    kind = copy.get("type")
    is_text = "string" in (kind if isinstance(kind, list) else [kind])
    if is_text and copy.keys().isdisjoint(limits):
        copy["maxLength"] = MAX_TEXT_LENGTH
    return copy


def _inner(key: str, value: Any, owner: str, definitions: dict[str, Any]) -> Any:
    if key == "$ref" and isinstance(value, str):
        return f"#/$defs/{owner}.{value.rpartition('/')[2]}" if value.startswith("#/") else value
    # The keys in here are names of the tool's own, which may be those of keywords.
    if key in ("properties", "patternProperties") and isinstance(value, dict):
        return {name: _limit_strings(inner, owner, definitions) for name, inner in value.items()}
    if key in ("const", "enum", "default", "examples", "required"):
        return value
    return _limit_strings(value, owner, definitions)
