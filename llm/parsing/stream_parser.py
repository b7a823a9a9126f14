"""The stream of a model's answer, parted into text for people, thoughts and tool calls.

`StreamParser` passes each piece through the parsers in this order: thoughts, tool calls, the
structured output, `HtmlEntityDecoder`, then `PromptEchoFilter` and `SentenceLimit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from llm.messages.message import Message, Status, ToolCall
from llm.parsing.html_entities import HtmlEntityDecoder
from llm.parsing.lenient_json import IncompleteJson, ParseError, read_value
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_calls import ToolCallParser
from terrarium.thinking import ThinkSplitter

_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|st|dr|mr|mrs|ms|prof|jr|sr|[a-z])|^\s*\d+)\.$",
    re.IGNORECASE,
)


_ANNOUNCED = re.compile(r":[*_]*\s*\Z")
_FENCED = "```"

_DENIES = r"(?!(?:both|hardly|neither|no|not|only|\S*n['’]t)\b)"
_ADDED_CLAUSE = re.compile(
    r"\A(?!\s*(?:according|after|although|as|at|before|because|by|during|for|from|if|in|of|on|over"
    r"|since|to|under|well|when|while|with|yes|no)\b)\s*"
    r"(?:(?:[^\s,]+\s+){2,}[^\s,]+(?=,\s+(?:as|known|making|meaning|not|where|which|who|whose)\s)"
    # "It is not red, but blue" says with the second half what the first one leaves open.
    rf"|(?:{_DENIES}[^\s,]+\s+){{2,}}{_DENIES}[^\s,]+(?=,\s+but\s))",
    re.IGNORECASE,
)
"""A sentence up to the comma before a clause that only adds to it: "Paris, which ..."."""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """The part of an answer that is shown: so many `sentences`, and with `main_clause` of each no
    more than what comes before ", which ...", ", not ..." and the like."""

    sentences: int
    main_clause: bool = False


class SentenceLimit:
    """Passes on the part of one answer within a limit as it streams; None: all of it.

    A sentence is whole: with what a colon at its end announces, and with all of its code.
    """

    def __init__(self, limit: AnswerLimit | None) -> None:
        self._limit = limit
        self._left = limit.sentences if limit else 0
        self._held = ""
        self._in_code = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part that belongs to these sentences."""
        if self._limit is None:
            return text
        self._held += text
        out = ""
        while not self.has_ended and (end := _END.search(self._held)):
            sentence, self._held = self._held[: end.end()], self._held[end.end() :]
            out += self._main_clause(sentence)
            self._in_code ^= sentence.count(_FENCED) % 2 == 1
            if self._in_code or _ANNOUNCED.search(sentence):
                continue
            if (out.strip() or end[0].strip()) and not _NO_END.search(sentence):
                self._left -= 1
                self.has_ended = self._left <= 0
        if not self.has_ended and self._left == 1 and self._main_clause(self._held) != self._held:
            out += self._main_clause(self._held)  # what follows in this sentence is not waited for
            self.has_ended = True
        if self.has_ended:
            self._held = ""
        return out.rstrip() if self.has_ended else out

    def _main_clause(self, sentence: str) -> str:
        """Return a sentence, perhaps not yet whole, without what only adds to it."""
        if self._limit is None or not self._limit.main_clause:
            return sentence
        found = _ADDED_CLAUSE.search(sentence)
        return f"{found[0]}." if found else sentence

    def finish(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return self._main_clause(held)


_NAMES = (
    "(?:earlier_|found_)?irc_logs|tool_results?|worked_out|guidance|lessons|episodes|own_facts|facts"
    "|notes|memory|topic"
)
_TAG = re.compile(
    rf"(?:<|&lt;)(?P<closing>\s*/)?\s*(?:{_NAMES})\b[^<>\n]{{0,60}}(?:>|&gt;|(?=\n))", re.I
)
_TAG_BEGUN = re.compile(r"(?:<|&(?:l(?:t;?)?)?)[\s/a-z_=\"']{0,60}\Z", re.IGNORECASE)
_LINE = re.compile(
    r"[ \t>]*\[(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?(?: UTC)?\][ \t]*"
    r"(?:<[^<>\s]{1,40}>|\* \S{1,40}|-[^\s-]\S{0,40}-|\*\*\*)[ \t]*"
)
_LINE_BEGUN = re.compile(r"[ \t>]*(?:\[[^\n]{0,80})?\Z")


class PromptEchoFilter:
    """Filters one answer as it streams; `prompt` is what the model was given.

    The first tag or forged line ends the answer (`has_ended`), as what follows is prompt as well.
    While nothing has been shown only the mark itself is dropped: the answer may still come. A line
    that stands in the prompt may be quoted.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""
        self._line_begins = True
        self._shown = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that may certainly be shown now."""
        return self._advance(text, final=False)

    def finish(self) -> str:
        """Return what was held back and may be shown."""
        return self._advance("", final=True)

    def _advance(self, text: str, *, final: bool) -> str:
        self._held += text
        out = ""
        while self._held and not self.has_ended:
            line, newline, rest = self._held.partition("\n")
            if self._line_begins and (head := _LINE.match(line)):
                if not newline and not final:
                    break
                if not self._is_quoted(line):
                    self._held = self._held[head.end() :]
                    self.has_ended = self._shown
                    continue
            elif self._line_begins and not newline and not final and _LINE_BEGUN.match(line):
                break
            piece, complete = self._strip_tags(line, whole=bool(newline) or final)
            out += piece
            self._shown = self._shown or bool(piece.strip())
            if not complete:
                self._line_begins = self._line_begins and not piece
                break
            if not self.has_ended:
                out += newline
            self._held, self._line_begins = rest, bool(newline)
        return out

    def _strip_tags(self, line: str, *, whole: bool) -> tuple[str, bool]:
        """Return a line without our tags, and False if its end must be held back."""
        out = ""
        while tag := _TAG.search(line):
            before = line[: tag.start()]
            out += before
            if (self._shown or out.strip()) and not tag["closing"]:
                self.has_ended = True
                return out.rstrip(), True
            line = line[tag.end() :]
        begun = None if whole else _TAG_BEGUN.search(line)
        if begun:
            self._held = line[begun.start() :]
            return out + line[: begun.start()], False
        if not whole:
            self._held = ""
        return out + line, whole

    def _is_quoted(self, line: str) -> bool:
        """Return if the model was shown this line."""
        squashed = " ".join(line.strip(" \t>").split())
        return any(
            squashed in " ".join(message["content"].split())
            for message in self._prompt
            if isinstance(message.get("content"), str)
        )


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
    """Parse an answer; an object may be cut off, or be followed by words."""
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
        """Return the part of the stream that is certainly text for people now."""
        self._held += text
        if self._plain or not _is_object(self._held, _object_start(self._held)):
            self._plain = True
            return self._let_go()
        return ""

    def finish(self) -> str:
        """Return what was held back and is for people."""
        if self._plain:
            return self._let_go()
        self.output = read_output(self._held)
        return self.output.text

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


def _object_start(text: str) -> int:
    """Return the index where an object would begin: after blanks, maybe in a fence."""
    start = len(text) - len(text.lstrip())
    match = _FENCE.match(text, start)
    return match.end() if match else start


def _is_object(text: str, start: int) -> bool:
    """Return if an answer that is an object begins there, or may yet."""
    rest = text[start:].lstrip()
    head = _HEAD.match(rest)
    if head is None:
        return _FENCE_BEGUN.fullmatch(rest) is not None
    keys = (*_KEYS, *_CALL_NAMES, *_CALL_ARGUMENTS)
    if head.end() == len(rest):
        return any(key.startswith(head[1]) for key in keys)
    return head[1] in keys


def _is_call(value: Mapping[str, Any]) -> bool:
    """Return if an object names a function and its arguments, in one of the usual forms."""
    inner = value.get("function")
    if isinstance(inner, dict):
        return _is_call(inner)
    named = any(isinstance(value.get(key), str) for key in _CALL_NAMES)
    return named and any(key in value for key in _CALL_ARGUMENTS)


class StreamParser:
    """The chain of parsers for one answer.

    Think blocks are taken out first, then calls of the tools in `schemas`, then the object that an
    answer may be, then what belongs to the `prompt`, then what is beyond the `limit`; where the
    answer was asked for as `data`, only the first. `decode_entities`: HTML entities become
    characters, before the prompt is looked for. Any cut of a stream gives the same.
    """

    def __init__(
        self,
        schemas: Iterable[Mapping[str, Any]] = (),
        prompt: Sequence[Message] = (),
        *,
        limit: AnswerLimit | None = None,
        decode_entities: bool = False,
        data: bool = False,
    ) -> None:
        self._data = data
        self._thinking = ThinkSplitter()
        self._calling = ToolCallParser(ToolCallFormats.from_schemas(schemas))
        self._answering = OutputSplitter()
        self._entities = HtmlEntityDecoder(prompt) if decode_entities else None
        self._filter = PromptEchoFilter(prompt)
        self._limit = SentenceLimit(limit)
        self.shown = ""
        self.thought = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that were written as text."""
        return self._calling.calls

    @property
    def status(self) -> Status | None:
        """The state of the conversation, if the answer has one; known at the end."""
        return self._answering.output.status

    @property
    def silent(self) -> bool:
        """True if the model wants to say nothing; known at the end."""
        return self._answering.output.silent

    @property
    def is_call(self) -> bool:
        """True if it is the call of a tool that does not exist; known at the end."""
        return self._answering.output.is_call

    @property
    def has_ended(self) -> bool:
        """True if the rest is of no use: there are enough sentences, or the model has gone on to
        write the prompt."""
        return self._filter.has_ended or self._limit.has_ended

    def feed(self, text: str) -> str:
        """Return the part that may be shown now."""
        parted = self._thinking.feed(text)
        self.thought += parted.thought
        if self._data:
            return self._show(parted.shown)
        answer = self._answering.feed(self._calling.feed(parted.shown))
        if self._entities:
            answer = self._entities.feed(answer)
        return self._show(self._limit.feed(self._filter.feed(answer)))

    def finish(self) -> str:
        """Return the rest that may be shown."""
        parted = self._thinking.finish()
        self.thought += parted.thought
        if self._data:
            return self._show(parted.shown)
        called = self._calling.feed(parted.shown) + self._calling.finish()
        answer = self._answering.feed(called) + self._answering.finish()
        if self._entities:
            answer = self._entities.feed(answer) + self._entities.finish()
        rest = self._limit.feed(self._filter.feed(answer) + self._filter.finish())
        return self._show(rest + self._limit.finish())

    def _show(self, text: str) -> str:
        self.shown += text
        return text
