"""Streaming parsers that split a model's answer into visible text, thoughts and tool calls.

`StreamParser` passes on what a model with native tool calls writes. For one that needs repairs it
is a pipeline: thoughts, tool calls, structured output, `HtmlEntityDecoder`, `PromptEchoFilter`,
`SentenceLimit`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args

from llm.messages.message import Message, Status, ToolCall, escape_tags
from llm.parsing.html_entities import HtmlEntityDecoder
from llm.parsing.lenient_json import IncompleteJson, ParsedValue, ParseError, read_value
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_calls import ToolCallParser
from terrarium.markdown_code import CodeSplitter, Segment
from terrarium.thinking import Split, ThinkSplitter

# A sentence ends only once the whitespace after it has arrived: "3." may become "3.5".
_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
# Abbreviations, initials and list numbers, whose full stop ends no sentence.
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|st|dr|mr|mrs|ms|prof|jr|sr|[a-z])|^\s*\d+)\.$",
    re.IGNORECASE,
)


_ANNOUNCED = re.compile(r":[*_]*\s*\Z")
_MARKS = "```"

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
            self._in_code ^= sentence.count(_MARKS) % 2 == 1
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
    r"[ \t>]*\[(?P<stamp>(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?)(?: UTC)?\][ \t]*"
    r"(?P<said>(?:<[^<>\s]{1,40}>|\* \S{1,40}|-[^\s-]\S{0,40}-|\*\*\*)[ \t]*)"
)
_LINE_BEGUN = re.compile(r"[ \t>]*(?:\[[^\n]{0,80})?\Z")


class PromptEchoFilter:
    """Streaming filter for prompt tags and forged log lines in the prose of one answer; `prompt` is
    what the model was given.

    The first opening tag or forged line ends the answer (`has_ended`): a model that starts to write
    its prompt continues with it. As long as nothing has been shown, only the tag or the line's
    prefix is removed, because the answer may follow. Lines of the prompt may be quoted, with their
    times in full or in part.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._held = ""
        self._line_begins = True
        self._shown = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certain to be shown."""
        self._held += text
        return self._advance(final=False)

    def pass_code(self, code: str) -> str:
        """Return the text still held back, as far as it may be shown, and code as it stands."""
        held = self._advance(final=True)
        if self.has_ended:
            return held
        self._shown, self._line_begins = True, code.endswith("\n")
        return held + code

    def finish(self) -> str:
        """Return the text still held back, as far as it may be shown."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        out = ""
        while self._held and not self.has_ended:
            line, newline, rest = self._held.partition("\n")
            if self._line_begins and (head := _LINE.match(line)):
                # Only a whole line can be compared with the prompt, so wait for its end.
                if not newline and not final:
                    break
                if not self._is_quoted(head):
                    self._held = self._held[head.end() :]
                    self.has_ended = self._shown
                    continue
                piece, complete = line, True
            elif self._line_begins and not newline and not final and _LINE_BEGUN.match(line):
                break
            else:
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

    def _is_quoted(self, head: re.Match[str]) -> bool:
        """Return whether the prompt contains the line that begins with `head`, ignoring differences
        in whitespace, at a time that `head` gives in full or in part."""
        said = _squash(escape_tags(f"] {head.string[head.start('said') :]}"))
        stamp = head["stamp"].replace("T", " ")
        for message in self._prompt:
            before, *later = _squash(str(message.get("content") or "")).split(said)
            for after in later:
                if stamp in before.rpartition("[")[2]:
                    return True
                before = after
        return False


def _squash(text: str) -> str:
    return " ".join(text.split())


_FENCE = re.compile(r"```(?:json)?[ \t\r]*+\n")
_FENCE_BEGUN = re.compile(r"`{0,3}|```j|```js|```jso|```json[ \t\r]*+|```[ \t\r]*+")
_HEAD = re.compile(r"\{\s*+[\"']?+(\w*+)")
_KEYS = ("response", "status")
_CALL_NAMES = ("name", "function", "tool", "tool_name", "action", "type", "id")
_CALL_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "action_input")
_ALL_KEYS = (*_KEYS, *_CALL_NAMES, *_CALL_ARGUMENTS)


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
    be truncated, or followed by text unless it is in a fence."""
    start = _object_start(text)
    if not _is_object(text, start):
        return StructuredOutput(text)
    try:
        read = read_value(text, start)
    except (ParseError, IncompleteJson):
        return StructuredOutput(text)
    if text.lstrip().startswith(_MARKS) and text[read.end :].strip("` \t\r\n"):
        return StructuredOutput(text)
    if _is_call(read.value):
        return StructuredOutput("", is_call=True)
    if read.value and not any(answer.startswith(key) for key in read.value for answer in _KEYS):
        return StructuredOutput(text)
    return _output(read) or StructuredOutput(text)


def read_status_object(text: str) -> StructuredOutput:
    """Parse an answer that was asked for as a `response`/`status` object. Anything else, including
    an object with other keys, is plain text."""
    try:
        read = read_value(text, _object_start(text))
    except (ParseError, IncompleteJson):
        return StructuredOutput(text)
    keys = set(read.value) if isinstance(read.value, dict) else set()
    whole = keys == set(_KEYS) or read.value == {"response": ""}
    begun = read.truncated and "response" in keys <= set(_KEYS)
    if text[read.end :].strip("` \t\r\n") or not (whole or begun):
        return StructuredOutput(text)
    return _output(read) or StructuredOutput(text)


def _output(read: ParsedValue) -> StructuredOutput | None:
    """Return the response and the status of an object; None if it has no text."""
    said, status = read.value.get("response", ""), read.value.get("status")
    if not isinstance(said, str) or not (read.value or read.truncated):
        return None
    known = cast(Status, status) if status in get_args(Status) else None
    return StructuredOutput(said.strip(), known, silent=not said.strip() and not read.truncated)


class OutputSplitter:
    """Streaming parser of structured output: holds an answer back while it may be an object, and
    passes plain text through at once.

    With `repairs` it unpacks whatever resembles the object or a call, else only the object that
    was asked for.
    """

    def __init__(self, *, repairs: bool = True) -> None:
        self._repairs = repairs
        self._keys = _ALL_KEYS if repairs else _KEYS
        self._held = ""
        self._plain = False
        self.output = StructuredOutput("")

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certainly visible text."""
        self._held += text
        if self._plain or not _is_object(self._held, _object_start(self._held), self._keys):
            self._plain = True
            return self._let_go()
        return ""

    def finish(self) -> str:
        """Return the visible text still held back, and set `output`."""
        if self._plain:
            return self._let_go()
        self.output = (read_output if self._repairs else read_status_object)(self._held)
        return self.output.text

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


def _object_start(text: str) -> int:
    """Return the index where an object would begin: after whitespace and perhaps a code fence."""
    start = len(text) - len(text.lstrip())
    match = _FENCE.match(text, start)
    return match.end() if match else start


def _is_object(text: str, start: int, keys: Sequence[str] = _ALL_KEYS) -> bool:
    """Return whether an object with one of `keys` first begins at `start`, or could with more
    text."""
    rest = text[start:].lstrip()
    head = _HEAD.match(rest)
    if head is None:
        return _FENCE_BEGUN.fullmatch(rest) is not None
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


class _Stage(Protocol):
    """A step of the pipeline: text in, text out."""

    def feed(self, text: str) -> str:
        """Return the text that is certain."""

    def finish(self) -> str:
        """Return the text still held back."""


class _Prose:
    """A stage that filters prose only, and passes code as it stands."""

    def __init__(self, prose: HtmlEntityDecoder | PromptEchoFilter) -> None:
        self._prose = prose
        self._splitter = CodeSplitter()

    def feed(self, text: str) -> str:
        return self._pass_on(self._splitter.feed(text))

    def finish(self) -> str:
        return self._pass_on(self._splitter.finish()) + self._prose.finish()

    def _pass_on(self, segments: Sequence[Segment]) -> str:
        return "".join(
            self._prose.pass_code(each.text) if each.is_code else self._prose.feed(each.text)
            for each in segments
        )


class StreamParser:
    """Pipeline of the parsers for one answer, whose result does not depend on how the stream is
    chunked.

    By default the answer passes as it is, but for the think blocks it begins with and, if the model
    was asked for it (`wants_status`), the status object.

    With `repairs`, think blocks are removed anywhere, then calls of the tools in `schemas`, then
    structured output is unpacked, then HTML entities are decoded (`decode_entities`), then echoes
    of the `prompt` removed, then the answer is truncated at the `limit`; none of it within code.
    """

    def __init__(
        self,
        schemas: Iterable[Mapping[str, Any]] = (),
        prompt: Sequence[Message] = (),
        *,
        repairs: bool = False,
        wants_status: bool = False,
        limit: AnswerLimit | None = None,
        decode_entities: bool = False,
    ) -> None:
        self._repairs = repairs
        self._thinking = ThinkSplitter(anywhere=repairs)
        self._calling: ToolCallParser | None = None
        self._answering = OutputSplitter(repairs=repairs)
        self._echo = PromptEchoFilter(prompt)
        self._limit = SentenceLimit(limit)
        self._stages: dict[str, _Stage] = {}
        if repairs:
            self._calling = ToolCallParser(ToolCallFormats.from_schemas(schemas))
            self._stages["calls"] = self._calling
        if repairs or wants_status:
            self._stages["status object"] = self._answering
        if repairs and decode_entities:
            # Before the echoes: an encoded tag or log line would otherwise pass.
            self._stages["HTML entities"] = _Prose(HtmlEntityDecoder(prompt))
        if repairs:
            self._stages["prompt echo"] = _Prose(self._echo)
            self._stages["sentence limit"] = self._limit
        self._removed: Counter[str] = Counter()  # characters by stage
        self.shown = ""
        self.thought = ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that were written as text."""
        return self._calling.calls if self._calling else ()

    @property
    def output(self) -> StructuredOutput:
        """The structured output, known after `finish`; its text is only that of an object."""
        return self._answering.output

    @property
    def has_ended(self) -> bool:
        """True if the rest of the stream can be discarded: the sentence limit is reached, or the
        model is repeating its prompt."""
        return self._echo.has_ended or self._limit.has_ended

    @property
    def filters(self) -> tuple[str, ...]:
        """The stages that have removed something, each with the number of characters; known after
        `finish`."""
        removed = {"thoughts": len(self.thought), **self._removed}
        return tuple(f"{name}: {count:,} characters" for name, count in removed.items() if count)

    def feed(self, text: str, *, is_separated: bool = False) -> str:
        """Return the text that can be shown now. `is_separated`: the engine has told the thoughts
        of this answer from its text."""
        if is_separated and not self._repairs:
            held = self._thinking.finish()
            return self._pass_on(Split(held.shown + text, held.thought), final=False)
        return self._pass_on(self._thinking.feed(text), final=False)

    def finish(self) -> str:
        """Return the remaining text that can be shown, after the last piece."""
        return self._pass_on(self._thinking.finish(), final=True)

    def _pass_on(self, split: Split, *, final: bool) -> str:
        self.thought += split.thought
        text = split.shown
        for name, stage in self._stages.items():
            out = stage.feed(text) + (stage.finish() if final else "")
            self._removed[name] += len(text) - len(out)
            text = out
        self.shown += text
        return text
