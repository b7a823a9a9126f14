"""The JSON schema that a tool call must follow, made from the tools' own schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_server.schemas.schema_limits import is_followed

LONGEST_TEXT = 1000
"""Characters of a string whose schema sets no limit: without one a small model may never end."""

MOST_CALLS = 8
"""Calls in one list."""


def one_call(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A schema of `{"name", "arguments"}` for any one of `tools`."""
    definitions: dict[str, Any] = {}
    calls = [_call(tool["function"], definitions) for tool in tools]
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**schema, "$defs": definitions} if definitions else schema


def many_calls(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A schema of a list of such calls."""
    item = one_call(tools)
    definitions = item.pop("$defs", None)
    schema = {"type": "array", "items": item, "minItems": 1, "maxItems": MOST_CALLS}
    return {**schema, "$defs": definitions} if definitions else schema


def any_of(call: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of a call or of the answer a client wants."""
    definitions = {**call.get("$defs", {})}
    wanted = _limit_strings(answer, "answer", definitions)
    alone = {key: value for key, value in call.items() if key != "$defs"}
    schema = {"anyOf": [alone, wanted]}
    return {**schema, "$defs": definitions} if definitions else schema


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The `response_format` that holds an answer to `schema`."""
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _call(function: Mapping[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    name = function["name"]
    wanted = function.get("parameters") or {"type": "object", "properties": {}}
    arguments = _limit_strings(wanted, name, definitions)
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _limit_strings(schema: Any, owner: str, definitions: dict[str, Any]) -> Any:
    """Copy a schema: definitions moved to the root under `owner`, free strings limited."""
    if isinstance(schema, list):
        return [_limit_strings(item, owner, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    for group in ("$defs", "definitions"):
        for name, inner in (schema.get(group) or {}).items():
            definitions[f"{owner}.{name}"] = _limit_strings(inner, owner, definitions)
    copy = {
        key: _inner(key, value, owner, definitions)
        for key, value in schema.items()
        if key not in ("$defs", "definitions", "$schema")
        # One pattern that llama.cpp does not know, and it would ignore the whole schema.
        and not (key == "pattern" and isinstance(value, str) and not is_followed(value))
    }
    if _is_free_text(copy):
        copy["maxLength"] = LONGEST_TEXT
    return copy


def _inner(key: str, value: Any, owner: str, definitions: dict[str, Any]) -> Any:
    if key == "$ref" and isinstance(value, str):
        return f"#/$defs/{owner}.{value.rpartition('/')[2]}" if value.startswith("#/") else value
    if key in ("properties", "patternProperties") and isinstance(value, dict):
        return {name: _limit_strings(inner, owner, definitions) for name, inner in value.items()}
    if key in ("const", "enum", "default", "examples", "required"):
        return value
    return _limit_strings(value, owner, definitions)


def _is_free_text(schema: Mapping[str, Any]) -> bool:
    limits = ("maxLength", "enum", "const", "pattern", "format")
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return "string" in kinds and not any(key in schema for key in limits)
