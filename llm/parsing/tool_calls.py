"""Streaming parser that extracts tool calls written as text from a model's answer.

    <<TOOL:name:parameters>>              parameters: an object, `x=1`, or the first one as it is
    <tool_call>{"name": ...}</tool_call>  or name(x=1) inside; <tool_result> with name(x=1) only
    {"name": "search", "arguments": {}}   alone on a line, of an existing tool
    search(query="frogs")                 alone on a line, of an existing tool
    ```json ... ```                       a fence with only such objects that is the whole answer

Quotations are not calls, as people can have the model repeat any text: code (inline, in any other
fence, or in such a fence beside other text), lines that begin with `>` or look like log lines, and
tags directly after a quotation mark. Elsewhere a `<<TOOL:name:` or `<tool_call>` tag is never
shown: a malformed or unclosed one becomes a call that fails with an error message for the model.
Think blocks have been removed before.

`ToolCallParser` buffers text that may become a call. `_read_tag` and `_read_line` classify the
start of the buffer. Both scan JSON with balanced brackets and strings, as the closing mark of a tag
may also occur inside a string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llm.messages.message import ToolCall
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_value
from llm.parsing.tool_call_formats import HEADS, ToolCallFormats

MAX_CALL_LENGTH = 20_000
"""Maximum characters of one call: limits how much text is held back."""


@dataclass(frozen=True, slots=True)
class NeedMore:
    """A reading: undecided until more text arrives, which includes `until` unless that is empty."""

    until: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A reading: the first `length` characters are text."""

    length: int


@dataclass(frozen=True, slots=True)
class Calls:
    """A reading: the first `length` characters are calls. Unless `is_final`, text before or after
    turns them into an example, which is shown."""

    calls: Sequence[ToolCall]
    length: int
    is_final: bool = True


@dataclass(frozen=True, slots=True)
class Code:
    """A reading: the first `length` characters open a code block, closed by a line with `fence`."""

    length: int
    fence: str


@dataclass(frozen=True, slots=True)
class QuotedLine:
    """A reading: the line quotes somebody, so no tag on it is a call."""


Reading = NeedMore | Text | Calls | Code | QuotedLine


OPENERS = ("<<tool:", "<tool_call>", "<tool_result>")
"""Openings of tags, matched case-insensitively."""

_FLAGS = re.IGNORECASE | re.ASCII
_TAG = re.compile(r"<<TOOL:([\w.-]{1,64})(:|>>)", _FLAGS)
_TAG_BEGUN = re.compile(r"<<TOOL:[\w.-]{0,64}>?", _FLAGS)
_BLOCKS = {opener: re.compile(f"</{opener[1:]}", _FLAGS) for opener in OPENERS if opener[1] != "<"}
_BLANKS = re.compile(r"[ \t]*+")


def _read_tag(text: str, formats: ToolCallFormats, *, final: bool) -> Reading:
    """Classify the tag that `text` begins with, one of OPENERS; `final` if no more text follows."""
    for opener, closer in _BLOCKS.items():
        if text[: len(opener)].lower() == opener:
            return _block(text, opener, closer, formats, final=final)
    match = _TAG.match(text)
    if match is None:
        wait = _TAG_BEGUN.fullmatch(text) and not final
        return NeedMore() if wait else Text(len(OPENERS[0]))
    name, begin = match[1], match.end()
    if match[2] == ">>":
        return Calls([formats.parse_tag(name, "", match[0])], begin)
    end = _end_of_parameters(text, begin)
    truncated = end is None
    if end is None:
        if not final:
            return NeedMore(">>")
        first = text.find(">>", begin)
        end = first if first >= 0 else len(text)
    length = min(end + 2, len(text))
    return Calls(
        [formats.parse_tag(name, text[begin:end], text[:length], truncated=truncated)], length
    )


def _end_of_parameters(text: str, begin: int) -> int | None:
    """Return the index after the parameters of a tag, before its `>>`; None if that is missing."""
    blank = _BLANKS.match(text, begin)
    assert blank is not None
    if text[blank.end() : blank.end() + 1] in ("{", "[", '"'):
        try:
            end = read_value(text, begin, final=False).end
        except IncompleteJson:
            if len(text) - begin <= MAX_CALL_LENGTH:
                return None
        except ParseError:
            pass
        else:
            rest = text[end:].lstrip()
            if rest.startswith(">>") and end - begin <= MAX_CALL_LENGTH:
                return len(text) - len(rest)
    first = text.find(">>", begin)
    return first if first >= 0 else None


def _block(
    text: str, opener: str, closer: re.Pattern[str], formats: ToolCallFormats, *, final: bool
) -> Reading:
    """Classify a block in tags. A `<tool_result>` block is a call only if it consists of one
    function call of a known tool; otherwise its opening tag is text."""
    begin = len(opener)
    closing: re.Match[str] | None
    try:
        closing = _closing(text, closer, begin, formats)
    except IncompleteJson:
        if not final:
            return NeedMore(f"</{opener[1:]}")
        closing = closer.search(text, begin)
    end, after = closing.span() if closing else (len(text), len(text))
    body, source = text[begin:end], text[:after]
    if opener == "<tool_call>":
        return Calls(_calls_in(body, source, formats), after)
    calls = _only_function(body, formats) if closing else []
    return Calls(calls, after) if calls else Text(begin)


def _closing(
    text: str, closer: re.Pattern[str], begin: int, formats: ToolCallFormats
) -> re.Match[str]:
    """Find the closing tag after the calls of a block, or the first one if the calls cannot be
    parsed or are too long. Raises IncompleteJson if there is none yet."""
    try:
        end = formats.end_of_calls(text, begin, closer)
    except ParseError:
        end = begin
    except IncompleteJson:
        if len(text) - begin <= MAX_CALL_LENGTH:
            raise
        end = begin
    match = closer.search(text, end if end - begin <= MAX_CALL_LENGTH else begin)
    if match is None:
        raise IncompleteJson
    return match


def _calls_in(body: str, source: str, formats: ToolCallFormats) -> list[ToolCall]:
    try:
        calls = formats.parse_all(body, source, final=True, strict=False)
    except (ParseError, IncompleteJson):
        calls = []
    return calls or [formats.unreadable_call(body, source)]


def _only_function(body: str, formats: ToolCallFormats) -> list[ToolCall]:
    try:
        found = formats.function(body, 0, final=False)
    except IncompleteJson:
        return []
    return [found[0]] if found and not body[found[1] :].strip() else []


# Keys of structured output. Such an object is read as a whole, so that a call quoted in it is not
# found.
_OUTPUT = frozenset({"response", "status"})
_REST = re.compile(r"[ \t\r]*+(?=\n|\Z)")
_FENCE = re.compile(r"(`{3,}+|~{3,}+)([^`\n]*+)\n")
_FENCE_BEGUN = re.compile(r"`{1,2}|`{3,}+[^`\n]*+|~{1,2}|~{3,}+[^`\n]*+")
_FUNCTIONS = {"": False, "json": False, "tool_call": True, "tool_code": True}
"""Info strings of fences that may hold calls, and whether function calls count as such."""
_HEAD = re.compile(r"[\[ \t\r\n]*+\{[ \t\r\n]*+[\"']?+(\w*+)")
_MAX_HEAD_LENGTH = 200  # characters
_NICK = re.compile(r"<[^<>\s]{1,32}> ")
_NICK_BEGUN = re.compile(r"<[^<>\s]{0,32}>?")
_WORD = re.compile(r"[A-Za-z_][\w.-]*+")


def _read_line(text: str, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    """Classify the start of a line; None if it has no special beginning, so that only tags within
    the line are left to look for."""
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
    """Classify a line that may be a quoted IRC message, `<nick> text`."""
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
        return NeedMore() if len(text) - at <= MAX_CALL_LENGTH else None
    if found is None or found[1] - at > MAX_CALL_LENGTH:
        return None
    return _alone([found[0]], text, found[1], final=final)


def _object(text: str, at: int, formats: ToolCallFormats, *, final: bool) -> Reading | None:
    begun = text[at : at + _MAX_HEAD_LENGTH]
    more = len(begun) < _MAX_HEAD_LENGTH and not final
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
        return NeedMore() if len(text) - at <= MAX_CALL_LENGTH else None
    except ParseError:
        return None
    if read.end - at > MAX_CALL_LENGTH:
        return None
    calls = formats.parse_object(
        read.value, text[at : read.end], truncated=read.truncated, strict=True
    )
    return Text(read.end) if calls is None else _alone(calls, text, read.end, final=final)


def _bracket(begun: str, *, more: bool) -> Reading | None:
    """Classify a line that begins with `[` without an object: a log line has its time there."""
    inner = begun.lstrip("[ \t\r\n")
    if not inner and more:
        return NeedMore()
    return QuotedLine() if inner[:1].isdigit() else None


def _alone(calls: list[ToolCall], text: str, end: int, *, final: bool) -> Reading:
    """Return the calls if nothing follows on their line, else the same characters as text."""
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
    """Return whether a fence whose content so far is `body` may hold nothing but calls."""
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
    """Parse the calls in a fence; None if it holds anything else, or too much."""
    closing = re.compile(rf"^[ \t]*+{ticks[0]}{{{len(ticks)},}}+[ \t\r]*+$", re.MULTILINE)
    match = closing.search(text, begin)
    end = match.start() if match else len(text)
    if end - begin > MAX_CALL_LENGTH:
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
    return Calls(calls, after, is_final=False) if calls else None


_SPECIAL = re.compile(rf"\n|`++|{'|'.join(OPENERS)}", re.IGNORECASE | re.ASCII)
_MAX_OPENER_LENGTH = max(map(len, OPENERS))
_MAX_SPAN_LENGTH = 2_000  # characters of inline code that are held back until it is closed
_QUOTES = "\"'`“‘«„"


@dataclass(slots=True)
class _Found:
    """Adjacent calls of the stream; unless `is_final`, their `source` is shown if more text
    follows."""

    calls: tuple[ToolCall, ...]
    source: str
    is_final: bool


class ToolCallParser:
    """Streaming parser that splits an answer into text and calls, however the stream is chunked."""

    def __init__(self, formats: ToolCallFormats) -> None:
        self._formats = formats
        self._found: list[_Found] = []
        self._held = ""
        self._out = ""
        self._last = ""  # the character before the held text
        self._has_text = False  # whether any text has been shown
        self._line_begins = True
        self._quoted = False  # whether the current line is a quotation
        self._fence = ""  # what closes the current code block, "" outside one
        self._awaited = NeedMore()
        self._looked = 0  # length of the held text that was searched for `_awaited.until`

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls found so far, in order."""
        return tuple(call for found in self._found for call in found.calls)

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certainly visible text."""
        self._held += text
        return self._advance(final=False)

    def finish(self) -> str:
        """Return the text still held back that turned out not to be a call."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        while self._held and (final or self._awaited_came()):
            reading = self._read(final=final)
            if isinstance(reading, NeedMore):
                self._awaited, self._looked = reading, len(self._held)
                break
            self._apply(reading)
            self._awaited = NeedMore()
        out, self._out = self._out, ""
        return out

    def _awaited_came(self) -> bool:
        """Return whether the held text is worth reading again. An open tag may grow long, and to
        parse it again for each piece would take quadratic time."""
        until = self._awaited.until
        # Overlap with the part already searched, as `until` may be split between two pieces.
        begin = max(0, self._looked - len(until))
        return until in self._held[begin:].lower()

    def _apply(self, reading: Reading | None) -> None:
        """Consume what was read; None, for a line without special beginning, consumes nothing."""
        # After any reading the rest is no longer at a line start, until `_take` sees a newline.
        self._line_begins = isinstance(reading, Code)
        if isinstance(reading, Calls) and not reading.is_final and self._has_text:
            reading = Text(reading.length)
        if isinstance(reading, Text):
            self._show(reading.length)
        elif isinstance(reading, Calls):
            source = self._take(reading.length)
            self._found.append(_Found(tuple(reading.calls), source, reading.is_final))
        elif isinstance(reading, Code):
            self._fence = reading.fence
            self._show(reading.length)
        elif isinstance(reading, QuotedLine):
            self._quoted = True

    def _read(self, *, final: bool) -> Reading | None:
        if self._fence:
            return self._code(final=final)
        if self._line_begins:
            return _read_line(self._held, self._formats, final=final)
        match = _SPECIAL.search(self._held)
        if match is None or match.start() > 0:
            length = match.start() if match else self._certain(final=final)
            return Text(length) if length else NeedMore()
        if match[0] == "\n":
            return Text(1)
        if match[0][0] == "`":
            return self._span(match.end(), final=final)
        if self._quoted or (self._last and self._last in _QUOTES):
            return Text(match.end())
        return _read_tag(self._held, self._formats, final=final)

    def _show(self, length: int) -> None:
        """Move the first `length` held characters to the output."""
        text = self._take(length)
        # A fence with calls counts only if it is the whole answer. Text after it makes it an
        # example, so its source is shown first. Whitespace is undecided, so it joins the source.
        if text.strip():
            self._has_text = True
            self._out += "".join(found.source for found in self._found if not found.is_final)
            self._found = [found for found in self._found if found.is_final]
        elif self._found and not self._found[-1].is_final:
            self._found[-1].source += text
            return
        self._out += text

    def _take(self, length: int) -> str:
        text, self._held = self._held[:length], self._held[length:]
        self._last = text[-1]
        if self._last == "\n":
            self._line_begins, self._quoted = True, False
        return text

    def _certain(self, *, final: bool) -> int:
        """Return how many of the held characters certainly do not begin a tag."""
        start = -1 if final else self._held.find("<", max(0, len(self._held) - _MAX_OPENER_LENGTH))
        while start >= 0:
            if any(tag.startswith(self._held[start:].lower()) for tag in OPENERS):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)

    def _span(self, ticks: int, *, final: bool) -> Reading:
        """Classify inline code: one token if it is closed on its line, else its backticks as text.

        As in CommonMark, it is closed by a run of exactly as many backticks.
        """
        line, end, _ = self._held[:_MAX_SPAN_LENGTH].partition("\n")
        decided = final or bool(end) or len(line) == _MAX_SPAN_LENGTH
        closing = re.compile(rf"(?<!`)`{{{ticks}}}(?!`)").search(line, ticks)
        if closing and (decided or closing.end() < len(line)):
            return Text(closing.end())
        return Text(ticks) if decided else NeedMore()

    def _code(self, *, final: bool) -> Reading:
        """Classify a complete or partial line of a code block; the closing line ends the block."""
        line, end, _ = self._held.partition("\n")
        mark = re.escape(self._fence[0])
        if self._line_begins and re.fullmatch(rf"[ \t]*+{mark}*+[ \t\r]*+", line):
            if not end and not final:
                return NeedMore()
            if line.count(self._fence[0]) >= len(self._fence):
                self._fence = ""
                return Text(len(line))
        return Text(len(line) + len(end))
