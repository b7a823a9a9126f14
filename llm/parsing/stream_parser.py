"""Streaming parsers that split a model's answer into visible text, thoughts and tool calls.

`StreamParser` passes each piece through a pipeline of parsers: thoughts, tool calls, structured
output, `HtmlEntityDecoder`, `PromptEchoFilter`, `SentenceLimit`.
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

# A sentence ends only once the whitespace after it has arrived: "3." may become "3.5".
_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
# Abbreviations, initials and list numbers, whose full stop ends no sentence.
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
    # A clause that denies something is kept whole: in "It is not red, but blue" the second half
    # has the answer.
    rf"|(?:{_DENIES}[^\s,]+\s+){{2,}}{_DENIES}[^\s,]+(?=,\s+but\s))",
    re.IGNORECASE,
)
"""The main clause of a sentence, up to the comma before a supplementary clause ("..., which ...").

Sentences that begin with a preposition or conjunction do not match: there the main clause comes
second.
"""


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """Limit of an answer's length: a number of `sentences`; with `main_clause`, each is cut before
    a supplementary clause (", which ...", ", not ...")."""

    sentences: int
    main_clause: bool = False


class SentenceLimit:
    """Streaming filter that truncates one answer at a sentence limit; None: no limit.

    A sentence that ends with a colon continues with what it announces, and a fenced code block
    belongs to the sentence before it.
    """

    def __init__(self, limit: AnswerLimit | None) -> None:
        self._limit = limit
        self._left = limit.sentences if limit else 0
        self._held = ""
        self._in_code = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the text that is within the limit."""
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
            # The rest of the last sentence would be dropped anyway, so end without awaiting it.
            out += self._main_clause(self._held)
            self.has_ended = True
        if self.has_ended:
            self._held = ""
        return out.rstrip() if self.has_ended else out

    def _main_clause(self, sentence: str) -> str:
        """Return a possibly incomplete sentence without its supplementary clause."""
        if self._limit is None or not self._limit.main_clause:
            return sentence
        found = _ADDED_CLAUSE.search(sentence)
        return f"{found[0]}." if found else sentence

    def finish(self) -> str:
        """Return the text still held back."""
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
    """Streaming filter for prompt tags and forged log lines in one answer; `prompt` is what the
    model was given.

    The first opening tag or forged line ends the answer (`has_ended`): a model that starts to write
    its prompt continues with it. As long as nothing has been shown, only the tag or the line's
    prefix is removed, because the answer may follow. Lines that occur in the prompt may be quoted.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""
        self._line_begins = True
        self._shown = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certain to be shown."""
        return self._advance(text, final=False)

    def finish(self) -> str:
        """Return the text still held back, as far as it may be shown."""
        return self._advance("", final=True)

    def _advance(self, text: str, *, final: bool) -> str:
        self._held += text
        out = ""
        while self._held and not self.has_ended:
            line, newline, rest = self._held.partition("\n")
            if self._line_begins and (head := _LINE.match(line)):
                # Only a whole line can be compared with the prompt, so wait for its end.
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
        """Return a line without prompt tags, and whether it is complete: False while more of it may
        come, or while its end, which is then held back, may be the beginning of a tag."""
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
        """Return whether the prompt contains this line, ignoring differences in whitespace."""
        squashed = " ".join(line.strip(" \t>").split())
        return any(
            squashed in " ".join(message["content"].split())
            for message in self._prompt
            if isinstance(message.get("content"), str)
        )


_FENCE = re.compile(r"```(?:json)?[ \t\r]*+\n")
_FENCE_BEGUN = re.compile(r"`{0,3}|```j|```js|```jso|```json[ \t\r]*+|```[ \t\r]*+")
_HEAD = re.compile(r"\{\s*+[\"']?+(\w*+)")
_KEYS = ("response", "status")
_CALL_NAMES = ("name", "function", "tool", "tool_name", "action", "type", "id")
_CALL_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "action_input")


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """A parsed answer: its text, its status if given, and whether it is deliberately empty.

    `is_call`: the object looks like the call of a tool that does not exist, and has no answer.
    """

    text: str
    status: Status | None = None
    silent: bool = False
    is_call: bool = False


def read_output(text: str) -> StructuredOutput:
    """Parse an answer, which is either plain text or a `response`/`status` object. The object may
    be truncated or followed by text."""
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
    if not isinstance(said, str) or not (read.value or read.truncated):
        return StructuredOutput(text)
    known = cast(Status, status) if status in get_args(Status) else None
    return StructuredOutput(said.strip(), known, silent=not said.strip() and not read.truncated)


class OutputSplitter:
    """Streaming parser of structured output: holds an answer back while it may be an object, and
    passes plain text through at once."""

    def __init__(self) -> None:
        self._held = ""
        self._plain = False
        self.output = StructuredOutput("")

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certainly visible text."""
        self._held += text
        if self._plain or not _is_object(self._held, _object_start(self._held)):
            self._plain = True
            return self._let_go()
        return ""

    def finish(self) -> str:
        """Return the visible text still held back, and set `output`."""
        if self._plain:
            return self._let_go()
        self.output = read_output(self._held)
        return self.output.text

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


def _object_start(text: str) -> int:
    """Return the index where an object would begin: after whitespace and perhaps a code fence."""
    start = len(text) - len(text.lstrip())
    match = _FENCE.match(text, start)
    return match.end() if match else start


def _is_object(text: str, start: int) -> bool:
    """Return whether an answer object begins at `start`, or could with more text."""
    rest = text[start:].lstrip()
    head = _HEAD.match(rest)
    if head is None:
        return _FENCE_BEGUN.fullmatch(rest) is not None
    keys = (*_KEYS, *_CALL_NAMES, *_CALL_ARGUMENTS)
    if head.end() == len(rest):
        return any(key.startswith(head[1]) for key in keys)
    return head[1] in keys


def _is_call(value: Mapping[str, Any]) -> bool:
    """Return whether an object has a function's name and arguments, in one of the usual forms."""
    inner = value.get("function")
    if isinstance(inner, dict):
        return _is_call(inner)
    named = any(isinstance(value.get(key), str) for key in _CALL_NAMES)
    return named and any(key in value for key in _CALL_ARGUMENTS)


class StreamParser:
    """Pipeline of the parsers for one answer.

    Removes think blocks, then calls of the tools in `schemas`, then unpacks structured output, then
    removes echoes of the `prompt`, then truncates at the `limit`. With `data`, the answer is
    machine-readable and only think blocks are removed. With `decode_entities`, HTML entities are
    decoded before the echo filter. The result does not depend on how the stream is chunked.
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
        """The tool calls that were written as text."""
        return self._calling.calls

    @property
    def status(self) -> Status | None:
        """The conversation status that the answer gives, if any; known after `finish`."""
        return self._answering.output.status

    @property
    def silent(self) -> bool:
        """True if the model chose to say nothing; known after `finish`."""
        return self._answering.output.silent

    @property
    def is_call(self) -> bool:
        """True if the answer is the call of a tool that does not exist; known after `finish`."""
        return self._answering.output.is_call

    @property
    def has_ended(self) -> bool:
        """True if the rest of the stream can be discarded: the sentence limit is reached, or the
        model is repeating its prompt."""
        return self._filter.has_ended or self._limit.has_ended

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        parted = self._thinking.feed(text)
        self.thought += parted.thought
        if self._data:
            return self._show(parted.shown)
        answer = self._answering.feed(self._calling.feed(parted.shown))
        # Entities first: an encoded tag or log line would otherwise pass the echo filter.
        if self._entities:
            answer = self._entities.feed(answer)
        return self._show(self._limit.feed(self._filter.feed(answer)))

    def finish(self) -> str:
        """Return the remaining text that can be shown, after the last piece."""
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
