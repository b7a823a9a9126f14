"""Reads what only the beginning of a line can be: an object or a function call alone on its line,
a fence, something quoted."""

from __future__ import annotations

import re

from llm.messages.message import ToolCall
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_value
from llm.parsing.tool_call_formats import HEADS, ToolCallFormats
from llm.parsing.tool_call_tags import OPENERS
from llm.parsing.tool_reading import LONGEST, Calls, Code, NeedMore, QuotedLine, Reading, Text

_OUTPUT = frozenset({"response", "status"})  # keys of the answer as an object: no call within it
_BLANKS = re.compile(r"[ \t]*+")
_REST = re.compile(r"[ \t\r]*+(?=\n|\Z)")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)([^`\n]*+)\n")
_FENCE_BEGUN = re.compile(r"`{1,2}|`{3,}+[^`\n]*+|~{1,2}|~{3,}+[^`\n]*+")
_FUNCTIONS = {"": False, "json": False, "tool_call": True, "tool_code": True}
"""The labels of fences that may hold calls, and whether written as functions too."""
_HEAD = re.compile(r"[\[ \t\r\n]*+\{[ \t\r\n]*+[\"']?+(\w*+)")
_HEAD_WITHIN = 200  # characters
_NICK = re.compile(r"<[^<>\s]{1,32}> ")
_NICK_BEGUN = re.compile(r"<[^<>\s]{0,32}>?")
_WORD = re.compile(r"[A-Za-z_][\w.-]*+")


def read_line(text: str, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    """What the line is that `text` begins with; None when nothing but text within a line can be
    there."""
    blank = _BLANKS.match(text)
    assert blank is not None
    at = blank.end()
    first = text[at : at + 1]
    if first in ("`", "~"):
        return _fence(text, at, formats, final=final)
    if first in ("{", "["):
        return _object(text, at, formats, final=final)
    if first == "<":
        return _nick(text[at:], final=final)
    if first == ">":
        return QuotedLine()
    if first.isalpha() or first == "_":
        return _function(text, at, formats, final=final)
    return None if first or final else NeedMore()


def _nick(rest: str, *, final: bool) -> Reading | None:
    """A line as IRC shows it: `<nick> text`."""
    if rest.lower().startswith(OPENERS):
        return None
    if _NICK_BEGUN.fullmatch(rest) and not final:
        return NeedMore()
    return QuotedLine() if _NICK.match(rest) else None


def _function(text: str, at: int, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    match = _WORD.match(text, at)
    if match is None:
        return None
    if match.end() == len(text) and not final and formats.may_begin(match[0]):
        return NeedMore()
    try:
        found = formats.function(text, at, final=final)
    except IncompleteJson:
        return NeedMore() if len(text) - at <= LONGEST else None
    if found is None or found[1] - at > LONGEST:
        return None
    return _alone([found[0]], text, found[1], final=final)


def _object(text: str, at: int, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    begun = text[at : at + _HEAD_WITHIN]
    more = len(begun) < _HEAD_WITHIN and not final
    head = _HEAD.match(begun)
    if head is None:
        return _bracket(begun, more=more)
    if head.end() == len(begun) and more:
        return NeedMore()
    if head[1] not in HEADS and head[1] not in _OUTPUT:
        return None
    try:
        read = read_value(text, at, final=final)
    except IncompleteJson:
        return NeedMore() if len(text) - at <= LONGEST else None
    except ParseError:
        return None
    if read.end - at > LONGEST:
        return None
    calls = formats.parse_object(read.value, text[at : read.end], cut=read.cut, strict=True)
    return Text(read.end) if calls is None else _alone(calls, text, read.end, final=final)


def _bracket(begun: str, *, more: bool) -> Reading | None:
    """`[` and no object: a line of the log has its time there."""
    inner = begun.lstrip("[ \t\r\n")
    if not inner and more:
        return NeedMore()
    return QuotedLine() if inner[:1].isdigit() else None


def _alone(calls: list[ToolCall], text: str, end: int, *, final: bool) -> Reading:
    """Calls, if nothing follows on their line; else that is text."""
    rest = _REST.match(text, end)
    if rest is None:
        return Text(end)
    return NeedMore() if rest.end() == len(text) and not final else Calls(calls, end)


def _fence(text: str, at: int, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    match = _FENCE.match(text, at)
    if match is None:
        return NeedMore() if _FENCE_BEGUN.fullmatch(text, at) and not final else None
    ticks, label, begin = match[1], match[2].strip().lower(), match.end()
    read: Reading | None = None
    functions = _FUNCTIONS.get(label)
    if functions is not None and _may_be_calls(text[begin:], formats, functions=functions):
        read = _parse_fence(text, ticks, begin, formats, functions=functions, final=final)
    return read or Code(begin, ticks)


def _may_be_calls(body: str, formats: ToolCallFormats, *, functions: bool) -> bool:
    """Whether what is in a fence so far may be nothing but calls."""
    body = body.lstrip()
    if head := _HEAD.match(body):
        return head.end() == len(body) or head[1] in HEADS
    if functions and (word := _WORD.match(body)):
        known = formats.knows(word[0])
        return known or (word.end() == len(body) and formats.may_begin(word[0]))
    return body.strip("[ \t\r\n") == ""


def _parse_fence(
    text: str, ticks: str, begin: int, formats: ToolCallFormats, *, functions: bool, final: bool
) -> Reading | None:
    """The calls in a fence; None when there is anything else in it."""
    closing = re.compile(rf"^[ \t]*+{ticks[0]}{{{len(ticks)},}}+[ \t\r]*+$", re.MULTILINE)
    match = closing.search(text, begin)
    end = match.start() if match else len(text)
    if end - begin > LONGEST:
        return None
    if not final and (match is None or match.end() == len(text)):
        return NeedMore()
    after = match.end() if match else end
    try:
        calls = formats.parse_all(
            text[begin:end],
            text[:after],
            final=match is None,
            strict=True,
            functions=functions,
        )
    except (ParseError, IncompleteJson):
        return None
    return Calls(calls, after, sure=False) if calls else None
