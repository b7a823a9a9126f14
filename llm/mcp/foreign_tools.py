"""Conversion of an MCP server's tools and results into ours; all that it sends is untrusted.

Whatever a server sends, the result is small and well formed: names that the OpenAI API allows and
that none of our tools has, schemas with only the keywords that models need, texts of bounded length
with our tags escaped. `pattern` and the like are dropped, as they are code for a regular expression
engine; the server validates its arguments itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from math import isfinite
from typing import Any

import mcp_types as types
from pydantic import BaseModel, ConfigDict

from llm.messages.message import escape_tags
from llm.tools.toolbox import MCP_SEPARATOR

MAX_TOOLS = 64
"""The most tools of one server that are offered; each costs tokens in every prompt."""

MAX_SCHEMA_LENGTH = 8_000
"""The most characters of a tool's whole description, as JSON."""

_MAX_NAME_LENGTH = 64  # characters, the limit of the OpenAI API
_MAX_DESCRIPTION_LENGTH = 600
_MAX_HINT_LENGTH = 200  # of one parameter
_MAX_DEPTH = 8
_MAX_PROPERTIES = 64
_MAX_CHOICES = 100
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_PROPERTY = re.compile(r"[\w.$-]{1,64}", re.ASCII)
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_BLANKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class ForeignArguments(BaseModel):
    """Any JSON object; the server validates it."""

    model_config = ConfigDict(extra="allow")


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a tool's name matches one of the glob patterns of the configuration."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def openai_schema(server: str, tool: types.Tool) -> dict[str, Any] | None:
    """Return a tool in the format of OpenAI's `tools` field, None if that is too large."""
    said = plain(tool.description or tool.title or "", _MAX_DESCRIPTION_LENGTH)
    definitions = {
        f"#/{where}/{name}": value
        for where in ("$defs", "definitions")
        if isinstance(tool.input_schema.get(where), Mapping)
        for name, value in tool.input_schema[where].items()
    }
    clean = _clean(tool.input_schema, definitions, _MAX_DEPTH)
    parameters = {"properties": {}, **clean, "type": "object"}
    function = {
        "name": f"{server}{MCP_SEPARATOR}{_UNFIT.sub('_', tool.name)}"[:_MAX_NAME_LENGTH],
        "description": f"{said} (a tool of the server {server})".strip(),
        "parameters": parameters,
    }
    schema = {"type": "function", "function": function}
    return schema if len(json.dumps(schema, ensure_ascii=False)) <= MAX_SCHEMA_LENGTH else None


def plain(text: str, most: int) -> str:
    """Return foreign text on one line, cut to `most` characters and with our tags escaped."""
    # Cut a first time before any work on a huge text; "replace" is for lone surrogates, which JSON
    # can hold and UTF-8 cannot.
    encodable = text[: 4 * most].encode(errors="replace").decode()
    line = " ".join(_BLANKS.sub(" ", encodable).split())
    return escape_tags(line if len(line) <= most else f"{line[:most]}...")


def _clean(schema: object, definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """Return the part of a JSON schema that tells a model what to write: `depth` levels of it, with
    references within the schema resolved."""
    if not isinstance(schema, Mapping) or depth == 0:
        return {}
    if (reference := schema.get("$ref")) is not None:
        target = definitions.get(reference) if isinstance(reference, str) else None
        # A reference costs a level too, which ends recursive schemas.
        return _clean(target, definitions, depth - 1)
    clean: dict[str, Any] = {}
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        clean["type"] = kind
    elif isinstance(kind, list) and kind and all(each in _TYPES for each in map(str, kind)):
        clean["anyOf"] = [{"type": each} for each in dict.fromkeys(map(str, kind))]
    if isinstance(text := schema.get("description"), str) and text:
        clean["description"] = plain(text, _MAX_HINT_LENGTH)
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_short = isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES
    if is_short and (sound := [each for each in choices if _is_sound(each)]):
        clean["enum"] = sound
    for bound in ("minimum", "maximum"):
        value = schema.get(bound)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            clean[bound] = value
    if isinstance(properties := schema.get("properties"), Mapping):
        fitting = (name for name in properties if _PROPERTY.fullmatch(name))
        names = list(islice(fitting, _MAX_PROPERTIES))
        clean["properties"] = {
            name: _clean(properties[name], definitions, depth - 1) for name in names
        }
        required = schema.get("required")
        known = [name for name in names if isinstance(required, list) and name in required]
        clean |= {"required": known} if known else {}
    if isinstance(items := schema.get("items"), Mapping):
        clean["items"] = _clean(items, definitions, depth - 1)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            clean["anyOf"] = [_clean(each, definitions, depth - 1) for each in choices[:8]]
    return clean


def _is_sound(choice: object) -> bool:
    """Return whether a model may be offered an enum value: a finite number, a short text that
    `plain` does not change, or null."""
    if isinstance(choice, str):
        return len(choice) <= _MAX_HINT_LENGTH and plain(choice, _MAX_HINT_LENGTH) == choice
    return choice is None or (isinstance(choice, int | float) and isfinite(choice))


def result_text(result: types.CallToolResult) -> str:
    """Return a result as text; content of other types is only named."""
    parts = []
    for block in result.content:
        match block:
            case types.TextContent():
                parts.append(block.text)
            case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
                parts.append(resource.text)
            case types.ResourceLink():
                parts.append(f"[{plain(block.uri, _MAX_HINT_LENGTH)}]")
            case _:
                parts.append(f"[{block.type}, which cannot be shown]")
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(filter(None, parts)) or "(no text)"
    return text.encode(errors="replace").decode()
