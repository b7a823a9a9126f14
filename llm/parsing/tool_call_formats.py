"""Syntaxes in which small models write a tool call as plain text, and their conversion to calls.

A JSON object (`{"name": ..., "arguments": {...}}` and its variants, or a list of them), a function
call (`name(x=1)`), and the name and parameters of a `<<TOOL:name:parameters>>` tag.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm.messages.message import ToolCall
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_arguments, read_value

_NAMES = ("name", "tool", "tool_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input")
_OTHER_KEYS = {"id", "type", "function"}
HEADS = frozenset({*_NAMES, *_ARGUMENTS, *_OTHER_KEYS, "tool_calls"})
"""Keys that may come first in the JSON object of a call."""

_FUNCTION = re.compile(r"[ \t\r\n]*+([A-Za-z_][\w.-]*+)(?=\()")
_BLANK = re.compile(r"[ \t\r\n;,]*+")
_SOME_NAME = re.compile(r"""["']?name["']?\s*:\s*["']([\w.-]{1,64})""")

Parameters = Mapping[str, Sequence[str]]
"""Tool names, each with the names of its parameters in declaration order."""


class ToolCallFormats:
    """Parser of calls to the known tools, whose names are matched case-insensitively."""

    def __init__(self, known: Parameters) -> None:
        self._known = known
        self._spelling = {name.lower(): name for name in known}

    @classmethod
    def from_schemas(cls, schemas: Iterable[Mapping[str, Any]]) -> ToolCallFormats:
        """Create a parser for the tools in OpenAI's `tools` field."""
        functions = [schema.get("function", {}) for schema in schemas]
        return cls(
            {
                each["name"]: tuple(each.get("parameters", {}).get("properties", {}))
                for each in functions
            }
        )

    def knows(self, name: str) -> bool:
        """Return whether a tool of this name exists."""
        return name.lower() in self._spelling

    def may_begin(self, word: str) -> bool:
        """Return whether `word` is a prefix of a tool's name."""
        return any(name.startswith(word.lower()) for name in self._spelling)

    def parse_object(
        self, value: Any, source: str, *, truncated: bool, strict: bool
    ) -> list[ToolCall] | None:
        """Return the calls that a JSON value represents, None if it represents none.

        With `strict`, each object may have no other keys than those of a call, and must name an
        existing tool. `source` is the text of the calls; `truncated` says that its end was missing.
        """
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        calls = [_call_parts(each) for each in (value if isinstance(value, list) else [value])]
        if not calls or any(call is None for call in calls):
            return None
        whole = [call for call in calls if call is not None]
        if strict and not all(fits and self.knows(name) for name, _, fits in whole):
            return None
        return [
            self._call(name, arguments, source, truncated=truncated) for name, arguments, _ in whole
        ]

    def parse_tag(
        self, name: str, parameters: str, source: str, *, truncated: bool = False
    ) -> ToolCall:
        """Return the call in a tag. Its `parameters` are a JSON object, keyword arguments, or else
        the value of the tool's first parameter."""
        text = parameters.strip()
        if not text:
            return self._call(name, {}, source, truncated=truncated)
        if text[0] in "{[\"'":
            try:
                read = read_value(text)
            except (ParseError, IncompleteJson):
                # Kept as written: validating them fails when the call runs, and tells the model.
                return self._call(name, text, source, truncated=truncated)
            value = read.value if not text[read.end :].strip() else text
            return self._call(
                name,
                self._bind_arguments(name, [value], {}),
                source,
                truncated=truncated or read.truncated,
            )
        named = self._by_name(name, text)
        return self._call(
            name, named or self._bind_arguments(name, [text], {}), source, truncated=truncated
        )

    def function(self, text: str, start: int, *, final: bool) -> tuple[ToolCall, int] | None:
        """Return the function call of a known tool at `start` and the index after it, None if there
        is none. Raises IncompleteJson if more text could complete a call."""
        match = _FUNCTION.match(text, start)
        if match is None or not self.knows(match[1]):
            return None
        try:
            read = read_arguments(text, match.end(), final=final)
        except ParseError:
            return None
        arguments = self._bind_arguments(match[1], read.positional, read.named)
        source = text[match.start() : read.end]
        return self._call(match[1], arguments, source, truncated=read.truncated), read.end

    def parse_all(
        self, body: str, source: str, *, final: bool, strict: bool, functions: bool = True
    ) -> list[ToolCall]:
        """Return the calls in a text that consists of nothing else. With `functions`, they may be
        written as function calls as well as JSON.

        Raises IncompleteJson if the text ends within a call, ParseError for anything else in it.
        """
        calls: list[ToolCall] = []
        at = _blank(body, 0)
        while at < len(body):
            if functions and (found := self.function(body, at, final=final)):
                calls.append(found[0])
                at = found[1]
            else:
                read = read_value(body, at, final=final)
                some = self.parse_object(
                    read.value, source, truncated=read.truncated, strict=strict
                )
                if some is None:
                    raise ParseError
                calls += some
                at = read.end
            at = _blank(body, at)
        return calls

    def end_of_calls(self, text: str, begin: int, closer: re.Pattern[str]) -> int:
        """Return the index after the calls that start at `begin`, where `closer` matches. Raises
        IncompleteJson and ParseError, as `parse_all` does."""
        at = _blank(text, begin)
        while not closer.match(text, at):
            found = self.function(text, at, final=False)
            at = _blank(text, found[1] if found else read_value(text, at, final=False).end)
        return at

    def unreadable_call(self, body: str, source: str) -> ToolCall:
        """Return a call for text that cannot be parsed. It fails when it runs, so that the model
        sees an error message."""
        match = _SOME_NAME.search(body)
        return self._call(match[1] if match else "", body.strip() or "{", source, truncated=False)

    def _call(self, name: str, arguments: Any, source: str, *, truncated: bool) -> ToolCall:
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        spelt = self._spelling.get(name.lower(), name)
        return ToolCall(f"call_{uuid.uuid4().hex[:12]}", spelt, written, source, truncated)

    def _bind_arguments(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return arguments by parameter name; a single positional object is the whole mapping."""
        if len(positional) == 1 and isinstance(positional[0], dict) and not named:
            return positional[0]
        parameters = self._known.get(self._spelling.get(name.lower(), ""), ())
        # Surplus arguments get names that no tool has: validation rejects them, they are not lost.
        places = [*parameters, *(f"argument_{n + 1}" for n in range(len(parameters), 99))]
        return {**dict(zip(places, positional, strict=False)), **named}

    def _by_name(self, name: str, text: str) -> dict[str, Any]:
        """Return parameters written as `x=1, y="a"`, an empty dict if the text is anything else or
        has a parameter that the tool does not have."""
        try:
            read = read_arguments(f"({text})", 0, final=False)
        except (ParseError, IncompleteJson):
            return {}
        known = self._known.get(self._spelling.get(name.lower(), ""), ())
        fits = not read.positional and read.end == len(text) + 2
        return read.named if fits and set(read.named) <= set(known) else {}


def _call_parts(value: Any) -> tuple[str, Any, bool] | None:
    """Return the name and arguments of an object that is a call, and whether it has no other keys.

    None if the object has no name.
    """
    if not isinstance(value, dict):
        return None
    # The form of OpenAI's `tool_calls`: {"id": ..., "type": "function", "function": {...}}.
    if isinstance(value.get("function"), dict):
        value = {**value["function"], **{key: value[key] for key in value if key == "id"}}
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    if name is None:
        return None
    key = next((key for key in _ARGUMENTS if key in value), None)
    arguments = value[key] if key else {}
    if arguments is None:
        arguments = {}
    fits = isinstance(arguments, dict | str) and set(value) <= {*_NAMES, *_ARGUMENTS, *_OTHER_KEYS}
    return name, arguments if isinstance(arguments, dict | str) else json.dumps(arguments), fits


def _blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()
