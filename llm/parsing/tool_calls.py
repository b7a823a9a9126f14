"""Tool calls that a model writes as text, taken out of what people are shown.

    <<TOOL:name:parameters>>              parameters: an object, `x=1`, or the first one as it is
    <tool_call>{"name": ...}</tool_call>  also with name(x=1) inside, also between <tool_result>
    {"name": "search", "arguments": {}}   alone on a line, of a tool that there is
    search(query="frogs")                 alone on a line, of a tool that there is
    ```json ... ```                       a fence with nothing but such objects, at the very end

What is quoted is no call: what stands in code (`...` or another fence, or this one when more text
follows), on a line that begins with `>` or as a line of the log, or just behind a quotation mark.
Tags are never shown, also when they are broken or do not close: then they are calls that fail, with
words for the model. Think blocks have been taken out before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from llm.messages.message import ToolCall
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_call_lines import read_line
from llm.parsing.tool_call_tags import OPENERS, read_tag
from llm.parsing.tool_reading import Calls, Code, NeedMore, QuotedLine, Reading, Text

_SPECIAL = re.compile(rf"\n|`++|{'|'.join(OPENERS)}", re.IGNORECASE | re.ASCII)
_LONGEST_OPENER = max(map(len, OPENERS))
_LONGEST_SPAN = 2_000  # characters of code within a line
_QUOTES = "\"'`“‘«„"


@dataclass(slots=True)
class _Found:
    """Calls; while they are not `sure`, more text makes an example of their `source`."""

    calls: tuple[ToolCall, ...]
    source: str
    sure: bool


class ToolCallParser:
    """Parts a stream into text and calls, whatever way its pieces cut it."""

    def __init__(self, formats: ToolCallFormats) -> None:
        self._formats = formats
        self._found: list[_Found] = []
        self._held = ""
        self._out = ""
        self._last = ""  # the character before what is held
        self._line_begins = True
        self._quoted = False  # the line
        self._fence = ""  # what closes the code we are in
        self._awaited = NeedMore()
        self._looked = 0  # how far what is awaited has been looked for

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far, in order."""
        return tuple(call for found in self._found for call in found.calls)

    def feed(self, text: str) -> str:
        """The part of the stream that is certainly text for people now."""
        self._held += text
        return self._advance(final=False)

    def finish(self) -> str:
        """What was held back and is text after all."""
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
        """Whether it is worth the while to read again: an open tag may grow long."""
        until = self._awaited.until
        begin = max(0, self._looked - len(until))
        return until in self._held[begin:].lower()

    def _apply(self, reading: Reading | None) -> None:
        """Take what was read off what is held; None: the line has nothing special to begin with."""
        self._line_begins = isinstance(reading, Code)
        if isinstance(reading, Text):
            self._show(reading.length)
        elif isinstance(reading, Calls):
            source = self._take(reading.length)
            self._found.append(_Found(tuple(reading.calls), source, reading.sure))
        elif isinstance(reading, Code):
            self._fence = reading.fence
            self._show(reading.length)
        elif isinstance(reading, QuotedLine):
            self._quoted = True

    def _read(self, *, final: bool) -> Reading | None:
        if self._fence:
            return self._code(final=final)
        if self._line_begins:
            return read_line(self._held, self._formats, final=final)
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
        return read_tag(self._held, self._formats, final=final)

    def _show(self, length: int) -> None:
        """Let the first characters go; calls that are not sure were an example before them."""
        text = self._take(length)
        if text.strip():
            self._out += "".join(found.source for found in self._found if not found.sure)
            self._found = [found for found in self._found if found.sure]
        elif self._found and not self._found[-1].sure:
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
        """How much of what is held cannot be the beginning of a tag."""
        start = -1 if final else self._held.find("<", max(0, len(self._held) - _LONGEST_OPENER))
        while start >= 0:
            if any(tag.startswith(self._held[start:].lower()) for tag in OPENERS):
                return start
            start = self._held.find("<", start + 1)
        return len(self._held)

    def _span(self, ticks: int, *, final: bool) -> Reading:
        """Code within a line, if what opens it is closed there."""
        line, end, _ = self._held[:_LONGEST_SPAN].partition("\n")
        decided = final or bool(end) or len(line) == _LONGEST_SPAN
        closing = re.compile(rf"(?<!`)`{{{ticks}}}(?!`)").search(line, ticks)
        if closing and (decided or closing.end() < len(line)):
            return Text(closing.end())
        return Text(ticks) if decided else NeedMore()

    def _code(self, *, final: bool) -> Reading:
        """A line of code, or what there is of it; the one that closes it is taken by itself."""
        line, end, _ = self._held.partition("\n")
        mark = re.escape(self._fence[0])
        if self._line_begins and re.fullmatch(rf"[ \t]*+{mark}*+[ \t\r]*+", line):
            if not end and not final:
                return NeedMore()
            if line.count(self._fence[0]) >= len(self._fence):
                self._fence = ""
                return Text(len(line))
        return Text(len(line) + len(end))
