"""Reads the two kinds of tag: `<<TOOL:name:parameters>>` and `<tool_call>...</tool_call>`.

A balanced scan: what closes a tag may also stand in a string within it.
"""

from __future__ import annotations

import re

from llm.messages.message import ToolCall
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_value
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_reading import LONGEST, Calls, NeedMore, Reading, Text

OPENERS = ("<<tool:", "<tool_call>", "<tool_result>")
"""What begins a tag, in whatever case."""

_FLAGS = re.IGNORECASE | re.ASCII
_TAG = re.compile(r"<<TOOL:([\w.-]{1,64})(:|>>)", _FLAGS)
_TAG_BEGUN = re.compile(r"<<TOOL:[\w.-]{0,64}>?", _FLAGS)
_BLOCKS = {opener: re.compile(f"</{opener[1:]}", _FLAGS) for opener in OPENERS if opener[1] != "<"}
_BLANKS = re.compile(r"[ \t]*+")


def read_tag(text: str, formats: ToolCallFormats, *, final: bool) -> Reading:
    """What the tag is that `text` begins with one of OPENERS for; `final` when no more comes."""
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
    cut = end is None
    if end is None:
        if not final:
            return NeedMore(">>")
        first = text.find(">>", begin)
        end = first if first >= 0 else len(text)
    length = min(end + 2, len(text))
    return Calls([formats.parse_tag(name, text[begin:end], text[:length], cut=cut)], length)


def _end_of_parameters(text: str, begin: int) -> int | None:
    """Where the parameters of a tag end, and `>>` follows; None when they do not yet."""
    blank = _BLANKS.match(text, begin)
    assert blank is not None
    if text[blank.end() : blank.end() + 1] in ("{", "[", '"'):
        try:
            end = read_value(text, begin, final=False).end
        except IncompleteJson:
            if len(text) - begin <= LONGEST:
                return None
        except ParseError:
            pass
        else:
            rest = text[end:].lstrip()
            if rest.startswith(">>") and end - begin <= LONGEST:
                return len(text) - len(rest)
    first = text.find(">>", begin)
    return first if first >= 0 else None


def _block(
    text: str, opener: str, closer: re.Pattern[str], formats: ToolCallFormats, *, final: bool
) -> Reading:
    """Calls between tags. Between those of a result there must be a call of a known function and
    nothing else, or it is text."""
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
    """What closes a block, behind the calls in it; when they cannot be read, the first that there
    is. Raises Incomplete when it has not come yet."""
    try:
        end = formats.end_of_calls(text, begin, closer)
    except ParseError:
        end = begin
    except IncompleteJson:
        if len(text) - begin <= LONGEST:
            raise
        end = begin
    match = closer.search(text, end if end - begin <= LONGEST else begin)
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
