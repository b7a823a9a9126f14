"""What a model answers: plain text, or an object that also says how it is with the conversation.

    {"response": "Hello.", "status": "awaiting_answer"}

An empty response means that it wants to say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from llm.messages.message import Status
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_value

FOLLOW_UP: dict[Status, float] = {"awaiting_answer": 180.0, "idle": 1800.0, "closed": 14400.0}
"""Seconds after which it may be time to speak again, by status."""

_FENCE = re.compile(r"```(?:json)?[ \t\r]*+\n")
_FENCE_BEGUN = re.compile(r"`{0,3}|```j|```js|```jso|```json[ \t\r]*+|```[ \t\r]*+")
_HEAD = re.compile(r"\{\s*+[\"']?+(\w*+)")
_KEYS = ("response", "status")
_CALL_NAMES = ("name", "function", "tool", "tool_name", "action", "type", "id")
_CALL_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "action_input")


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """An answer: its text, its status where it has one, and whether it is silent by intent.

    `is_call`: it is no answer but looks like a call of a tool that does not exist.
    """

    text: str
    status: Status | None = None
    silent: bool = False
    is_call: bool = False


def read_output(text: str) -> StructuredOutput:
    """The answer that `text` is; an object may be cut off, or be followed by words."""
    start = _object_start(text)
    if not _is_object(text, start):
        return StructuredOutput(text)
    try:
        read = read_value(text, start)
    except (ParseError, IncompleteJson):
        return StructuredOutput(text)
    if _is_call(read.value):
        return StructuredOutput("", is_call=True)
    if read.value and not any(answer.startswith(key) for key in read.value for answer in _KEYS):
        return StructuredOutput(text)
    said, status = read.value.get("response", ""), read.value.get("status")
    if not isinstance(said, str) or not (read.value or read.cut):
        return StructuredOutput(text)
    known = cast(Status, status) if status in get_args(Status) else None
    return StructuredOutput(said.strip(), known, silent=not said.strip() and not read.cut)


class OutputSplitter:
    """Holds back an answer that may be an object, until it can be read; text goes on at once."""

    def __init__(self) -> None:
        self._held = ""
        self._plain = False
        self.output = StructuredOutput("")

    def feed(self, text: str) -> str:
        """The part of the stream that is certainly text for people now."""
        self._held += text
        if self._plain or not _is_object(self._held, _object_start(self._held)):
            self._plain = True
            return self._let_go()
        return ""

    def finish(self) -> str:
        """What was held back and is for people."""
        if self._plain:
            return self._let_go()
        self.output = read_output(self._held)
        return self.output.text

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


def _object_start(text: str) -> int:
    """Where an object would begin: behind blanks, maybe in a fence."""
    start = len(text) - len(text.lstrip())
    match = _FENCE.match(text, start)
    return match.end() if match else start


def _is_object(text: str, start: int) -> bool:
    """Whether an answer that is an object begins there, or may yet."""
    rest = text[start:].lstrip()
    head = _HEAD.match(rest)
    if head is None:
        return _FENCE_BEGUN.fullmatch(rest) is not None
    keys = (*_KEYS, *_CALL_NAMES, *_CALL_ARGUMENTS)
    if head.end() == len(rest):
        return any(key.startswith(head[1]) for key in keys)
    return head[1] in keys


def _is_call(value: Mapping[str, Any]) -> bool:
    """Whether an object names a function and its arguments, in one of the usual forms."""
    inner = value.get("function")
    if isinstance(inner, dict):
        return _is_call(inner)
    named = any(isinstance(value.get(key), str) for key in _CALL_NAMES)
    return named and any(key in value for key in _CALL_ARGUMENTS)
