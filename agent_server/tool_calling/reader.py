"""Reads the tool calls that a model writes as text.

    {"name": "search", "arguments": {}}   on a line of its own, or a JSON list of these
    <tool_call>{"name": ...}</tool_call>  the tag that Qwen and Hermes models have learned
    ```json ... ```                       a fence that the answer begins with

`CallDetector` finds where a call begins, `CallReader` reads one that follows its schema while it is
written, and `read_calls` a whole text that may follow none. Whatever else stands in code is no
call, nor is one that stands word for word in what the model was given: people can make it repeat
any text.
"""

from __future__ import annotations

import ast
import html
import json
import re
import uuid
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_server.schemas.chat import plain


@dataclass(frozen=True, slots=True)
class DetectedCall:
    """A call of the tool `name`; `many` if it is the first one in a JSON list."""

    name: str
    many: bool


Verdict = DetectedCall | Literal["open", "text"]
"""`open`: the text may still become a call; `text`: it cannot."""

_WRAPPERS = ("<tool_call>", "```json")
_WRAPPER = re.compile(r"\s*(?:(?:```(?:json)?|<tool_call>)\s*)?")
_WRAPPER_END = re.compile(r"```|</tool_call>")
# The beginning of a call in parts, between which white space may stand.
_BEFORE_NAME = ("{", '"name"', ":")
_AFTER_NAME = (",", '"arguments"', ":", "{")
_NAME = re.compile(r'"[\w.-]{1,64}"', re.ASCII)
_NAME_BEGUN = re.compile(r'(?:"[\w.-]{0,64})?', re.ASCII)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)\n")
_FENCE_BEGUN = re.compile(r"[ \t]*(?:`{1,2}|~{1,2}|(?:`{3,}|~{3,})[^`\n]*)?")
_DECODER = json.JSONDecoder(strict=False)


class CallDetector:
    """Searches streamed text for a line that begins a call, of one of the tools `names` or of one
    that does not exist; `messages` are what the model was given.

    `buffered` is the text held back because it may be a call, with any words before the call that
    came in the same piece.
    """

    def __init__(self, names: Collection[str], messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self._names = names
        self._messages = messages
        self._line: int | None = 0  # start of a possible call in `buffered`, if any
        self._is_first = True  # whether that is the first line of the answer
        self._fence = ""  # the marks that opened the current code block
        self.buffered = ""

    @property
    def words(self) -> str:
        """The part of `buffered` before the call."""
        return self.buffered[: self._line]

    def feed(self, piece: str) -> Verdict:
        """Return the verdict after one more piece; after "text" nothing is held back any more."""
        self.buffered += piece
        while True:
            if self._line is not None and (verdict := self._judge()) != "text":
                return verdict
            end = self.buffered.find("\n", self._line or 0)
            if end < 0:
                self.buffered, self._line = "", None
                return "text"
            # The next line, which may be in the same piece.
            self._line, self._is_first = end + 1, False

    def _judge(self) -> Verdict:
        """Return the verdict on the line that begins at `_line`, and keep account of fences."""
        text = self.buffered[self._line :]
        if not self._fence:
            verdict = detect(text, self._names, begins=self._is_first)
            if isinstance(verdict, DetectedCall):
                verdict = self._unless_quoted(verdict, text)
            if verdict != "text":
                return verdict
        if fence := _FENCE.match(text):
            if not self._fence:
                self._fence = fence[1]
            elif fence[1].startswith(self._fence) and not fence[2].strip():
                self._fence = ""
        return "open" if _FENCE_BEGUN.fullmatch(text) else "text"

    def _unless_quoted(self, call: DetectedCall, text: str) -> Verdict:
        """Return the call, unless it is, or may still become, one that the messages have."""
        given = _squash("\n".join(plain(m.get("content")) for m in self._messages))
        source = text[text.index("{") :]
        if _squash(source) in given:
            return "open"
        try:
            _, end = _DECODER.raw_decode(source)
        except (ValueError, RecursionError):
            return call
        return "text" if _squash(source[:end]) in given else call


def detect(text: str, names: Collection[str], *, begins: bool = True) -> Verdict:
    """Judge whether a line, optionally in a tag, begins a call. It may also be in a fence if the
    answer `begins` with it."""
    start = text.lstrip()
    wrappers = _WRAPPERS if begins else _WRAPPERS[:1]
    if any(wrapper.startswith(start) for wrapper in wrappers):
        return "open"
    match = _WRAPPER.match(text) if begins or not start.startswith("`") else None
    rest = text[match.end() :] if match else text
    many = rest.startswith("[")
    rest, verdict = _skip(rest[1:].lstrip() if many else rest, _BEFORE_NAME)
    if verdict:
        return verdict
    # With the closing quote: one name may be the beginning of another.
    if name := next((name for name in names if rest.startswith(f'"{name}"')), None):
        return DetectedCall(name, many)
    if any(f'"{name}"'.startswith(rest) for name in names) or _NAME_BEGUN.fullmatch(rest):
        return "open"
    if not (other := _NAME.match(rest)):
        return "text"
    _, verdict = _skip(rest[other.end() :].lstrip(), _AFTER_NAME)
    return verdict or DetectedCall(other[0].strip('"'), many)


def _skip(text: str, marks: Sequence[str]) -> tuple[str, Literal["open", "text"] | None]:
    """Return the text after all of the marks; a verdict if one of them is not there, or not yet."""
    for mark in marks:
        if not text.startswith(mark):
            return text, "open" if mark.startswith(text) else "text"
        text = text[len(mark) :].lstrip()
    return text, None


def _squash(text: str) -> str:
    # Clients may escape the tags in what people wrote (ours by "‹"), and models space JSON as they
    # like.
    return "".join(html.unescape(text).replace("‹", "<").split())


_BEGINNING = re.compile(
    r'[\s,\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)'
)


class CallReader:
    """Converts `{"name", "arguments"}`, or a list of them, to `tool_calls` deltas piece by piece.

    The text must follow the schema of a call: `arguments` is an object. Any other text yields
    nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held = ""
        # Levels of open brackets in the arguments: 0 outside of them, -1 before the first.
        self._depth = 0
        self._quoted = self._escaped = False

    def feed(self, text: str) -> list[dict[str, Any]]:
        """Return the deltas that `text` completes; a call begins once its name is complete."""
        self._held += text
        deltas: list[dict[str, Any]] = []
        while True:
            if self._depth:
                end = self._end()
                part, self._held = self._held[:end], self._held[end:]
                if not part:
                    return deltas
                deltas.append({"index": self.count - 1, "function": {"arguments": part}})
            else:
                # The brace that closes the previous call may be first.
                match = _BEGINNING.match(self._held.lstrip("} \t\r\n"))
                if match is None or match.string[match.end()] != "{":
                    return deltas
                self._held = match.string[match.end() :]
                self.count += 1
                self._depth = -1  # the first brace is still to be read
                deltas.append(_call_delta(self.count - 1, json.loads(match[1]), ""))

    def _end(self) -> int:
        """Return the end of the arguments in the held text; its length if they go on."""
        # Brackets inside strings do not count. The state outlives the call, as a piece may end
        # anywhere, even within an escape.
        for place, letter in enumerate(self._held):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = letter == "\\"
                self._quoted = letter != '"'
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth = max(self._depth, 0) + 1
            elif letter in "}]":
                self._depth -= 1
                if not self._depth:
                    return place + 1
        return len(self._held)


def _call_delta(index: int, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call_id = f"call_{uuid.uuid4().hex[:24]}"
    return {"index": index, "id": call_id, "type": "function", "function": function}


def read_calls(text: str, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the `tool_calls` deltas of the calls in a whole text; none if it has none.

    Arguments that cannot be read are passed on as they are: whoever runs the call can tell the
    model what is wrong with them.
    """
    detector = CallDetector(names)
    found = detector.feed(text)
    if not isinstance(found, DetectedCall):
        return []
    body, calls = _WRAPPER.sub("", text[len(detector.words) :], count=1), list[tuple[str, str]]()
    try:
        value = read_json(body)
        for call in value if isinstance(value, list) else [value]:
            arguments = call.get("arguments", call.get("parameters", {}))
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, allow_nan=False)
            calls.append((str(call["name"]), arguments))
    except (ValueError, KeyError, AttributeError):
        calls = [(found.name, body)]
    return [_call_delta(index, *call) for index, call in enumerate(calls)]


MAX_LENIENT_LENGTH = 20_000
"""Maximum characters of almost-JSON that are parsed."""


def read_json(text: str) -> Any:
    """Read the value that a text begins with: JSON, or what small models take for it, with single
    quotes, trailing commas, bare keys or Python's words. Raises ValueError."""
    try:
        return _DECODER.raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        pass
    end = _WRAPPER_END.search(text)
    text = text[: end.start() if end else len(text)].strip()
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes that Python does not know
            return _value(ast.parse(text[:MAX_LENIENT_LENGTH], mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("no value") from error


_WORDS = {"true": True, "false": False, "null": None}


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Dict(keys, values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.List(items):
            return [_value(item) for item in items]
        case ast.Constant(str() | bool() | int() | float() | None as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
            return -number
        case ast.Name(word) if word in _WORDS:
            return _WORDS[word]
    raise ValueError("no value")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(str() as key) | ast.Name(key):
            return key
    raise ValueError("no value")
