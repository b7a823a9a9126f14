"""Streaming filters of an answer that need its question: everything else in it is read by the agent
server.

`AnswerFilter` unpacks the status object that a model was asked for and, of models that need it,
ends the answer where they recite their prompt, or after some sentences.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, get_args

from pydantic_core import from_json

from llm.messages.message import Message, Status, escape_tags
from terrarium.markdown_code import CodeSplitter, Segment

# A sentence ends only once the whitespace after it has arrived: "3." may become "3.5".
_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
# Abbreviations, initials and list numbers, whose full stop ends no sentence.
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|st|dr|mr|mrs|ms|prof|jr|sr|[a-z])|^\s*\d+)\.$",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(r":[*_]*\s*\Z")
# The main clause of a sentence, before a comma and what only adds to it. One that denies something
# is kept whole: in "It is not red, but blue" the second half has the answer.
_MAIN_CLAUSE = re.compile(
    r"\A(?![^,]*(?:\b(?:both|hardly|neither|no|not|only)\b|n['’]t\b))\s*(?:[^\s,]+\s+){2,}[^\s,]+"
    r"(?=,\s+(?:as|but|known|making|meaning|not|where|which|who|whose)\s)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AnswerLimit:
    """Limit of an answer: a number of `sentences`; with `main_clause`, each is cut before a clause
    that only adds to it (", which ...", ", not ...").

    An answer whose tokens have a lower geometric mean of probability than `certainty` is not given.
    """

    sentences: int
    main_clause: bool = False
    certainty: float = 0.0


class SentenceLimit:
    """Streaming filter that ends an answer at its limit.

    A sentence that ends with a colon continues with what it announces, and a fenced code block
    belongs to the sentence before it.
    """

    def __init__(self, limit: AnswerLimit) -> None:
        self._limit = limit
        self._left = limit.sentences
        self._held = ""
        self._in_code = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the text that is within the limit."""
        self._held += text
        out = ""
        while not self.has_ended and (end := _END.search(self._held)):
            sentence, self._held = self._held[: end.end()], self._held[end.end() :]
            out += self._shortened(sentence)
            self._in_code ^= sentence.count("```") % 2 == 1
            if self._in_code or _ANNOUNCED.search(sentence):
                continue
            if (out.strip() or end[0].strip()) and not _NO_END.search(sentence):
                self._left -= 1
                self.has_ended = self._left <= 0
        if self._left == 1 and (short := self._shortened(self._held)) != self._held:
            # The rest of the last sentence would be dropped anyway, so end without awaiting it.
            out, self.has_ended = out + short, True
        if self.has_ended:
            self._held = ""
        return out.rstrip() if self.has_ended else out

    def finish(self) -> str:
        """Return the text still held back."""
        held, self._held = self._held, ""
        return self._shortened(held)

    def _shortened(self, sentence: str) -> str:
        """Return a possibly incomplete sentence without what only adds to it."""
        main = _MAIN_CLAUSE.search(sentence) if self._limit.main_clause else None
        return f"{main[0]}." if main else sentence


_NAMES = (
    "(?:earlier_|found_)?irc_logs|tool_results?|worked_out|guidance|lessons|episodes|own_facts|facts"
    "|notes|memory|topic"
)
_MARK = re.compile(
    rf"(?P<tag>(?:<|&lt;)(?P<closing>[ \t]*/)?[ \t]*(?:{_NAMES})\b[^<>\n]{{0,60}}(?:>|&gt;|(?=\n)))"
    r"|^[ \t>]*\[(?P<stamp>(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?)(?: UTC)?\][ \t]*"
    r"(?P<said>(?:(?:<|&lt;)[^<>\s]{1,40}(?:>|&gt;)|\* \S{1,40}|-[^\s-]\S{0,40}-|\*\*\*)[ \t]*)",
    re.IGNORECASE | re.MULTILINE,
)
"""A tag of prompts, or the prefix of a log line."""
_MARK_BEGUN = re.compile(
    r"(?:<|&(?:l(?:t;?)?)?)[ \t/a-z_=\"']{0,60}\Z|^[ \t>]*(?:\[[^\n]{0,80})?\Z|\Z",
    re.IGNORECASE | re.MULTILINE,
)


class PromptEchoFilter:
    """Streaming filter for prompt tags and forged log lines in the prose of one answer; `prompt` is
    what the model was given.

    The first opening tag or forged line ends the answer (`has_ended`): a model that starts to write
    its prompt continues with it. As long as nothing has been shown, only the tag or the line's
    prefix is removed, because the answer may follow. Lines of the prompt may be quoted, with their
    times in full or in part, and code passes as it is.
    """

    def __init__(self, prompt: Sequence[Message] = ()) -> None:
        self._prompt = prompt
        self._code = CodeSplitter()
        self._last = "\n"  # the character before the text held back
        self._held = ""
        self._shown = False
        self.has_ended = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certain to be shown."""
        return self._pass_on(self._code.feed(text))

    def finish(self) -> str:
        """Return the text still held back, as far as it may be shown."""
        return self._pass_on(self._code.finish()) + self._advance(final=True)

    def _pass_on(self, segments: Sequence[Segment]) -> str:
        out = ""
        for segment in segments:
            if not segment.is_code:
                self._held += segment.text
            out += self._advance(final=segment.is_code)
            if segment.is_code and not self.has_ended:
                self._shown, self._last = True, segment.text[-1]
                out += segment.text
        return out

    def _advance(self, *, final: bool) -> str:
        out = ""
        while self._held and not self.has_ended:
            # With the character before it, after which a line may begin.
            text = self._last + self._held
            mark = _MARK.search(text, 1)
            if mark is None:
                begun = None if final else _MARK_BEGUN.search(text, 1)
                return out + self._take(begun.start() - 1 if begun else len(self._held))
            out += self._take(mark.start() - 1)
            if mark["stamp"]:
                line, newline, _ = self._held.partition("\n")
                # Only a whole line can be compared with the prompt, so wait for its end.
                if not newline and not final:
                    return out
                if self._is_quoted(mark["stamp"], line[mark.start("said") - mark.start() :]):
                    out += self._take(len(line))
                    continue
            self.has_ended = self._shown and not mark["closing"]
            self._held = text[mark.end() :]
        return out

    def _take(self, length: int) -> str:
        """Return that much of the text held back, which is shown."""
        text, self._held = self._held[:length], self._held[length:]
        self._last = text[-1:] or self._last
        self._shown = self._shown or bool(text.strip())
        return text

    def _is_quoted(self, stamp: str, said: str) -> bool:
        """Return whether the prompt contains a line that says this, ignoring differences in
        whitespace, at a time that `stamp` gives in full or in part."""
        said, stamp = _squash(escape_tags(f"] {said}")), stamp.replace("T", " ")
        for message in self._prompt:
            before, *later = _squash(str(message.get("content") or "")).split(said)
            for after in later:
                if stamp in before.rpartition("[")[2]:
                    return True
                before = after
        return False


def _squash(text: str) -> str:
    return " ".join(text.split())


_STATUS = frozenset({"response", "status"})
_CALLS = ({"name", "arguments"}, {"name", "parameters"})
_MARGIN = "` \t\r\n"  # around an object, which may be in a fence
_DECODER = json.JSONDecoder(strict=False)


class ObjectFilter:
    """Streaming reader of an answer that is one JSON object: holds it back while it may be.

    The `response`/`status` object is unpacked with `wants_status`. With `drops_calls`, the call of
    a tool, where there is none, is nothing. Any other text, or object, passes as it is. After
    `finish`, `status` is that of the object, and `silent` says that its response is empty.
    """

    def __init__(self, *, wants_status: bool, drops_calls: bool) -> None:
        self._wants_status, self._drops_calls = wants_status, drops_calls
        keys = [*(_STATUS if wants_status else ()), *(["name"] if drops_calls else ())]
        self._beginnings = [f'{{"{key}"' for key in keys]
        self._held = ""
        self._plain = False
        self.status: Status | None = None
        self.silent = False

    def feed(self, text: str) -> str:
        """Return the part of the stream that is certainly visible text."""
        self._held += text
        begun = "".join(self._held[:100].split())
        head = begun.removeprefix("```").removeprefix("json")
        may_be = any(key.startswith(head) or head.startswith(key) for key in self._beginnings)
        self._plain = self._plain or not (may_be or "```json".startswith(begun))
        return self._let_go() if self._plain else ""

    def finish(self) -> str:
        """Return the visible text still held back."""
        start = self._held.find("{")
        value, after = _read_object(self._held[start:])
        if self._plain or start < 0 or (after or "").strip(_MARGIN):
            return self._let_go()
        if self._drops_calls and value.keys() in _CALLS:
            return ""
        said, status = value.get("response"), value.get("status")
        is_whole = value.keys() == _STATUS or value == {"response": ""}
        is_cut = after is None and value.keys() <= _STATUS
        if not (self._wants_status and isinstance(said, str) and (is_whole or is_cut)):
            return self._let_go()
        self.status = cast(Status, status) if status in get_args(Status) else None
        self.silent = after is not None and not said.strip()
        return said.strip()

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


def _read_object(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the object that a text begins with and the text after it: None if the object was cut
    off. An empty one if there is none."""
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        try:
            return from_json(text, allow_partial="trailing-strings"), None
        except ValueError:
            return {}, None
    return value, text[end:]


class _Stage(Protocol):
    """A step of the pipeline: text in, text out."""

    def feed(self, text: str) -> str:
        """Return the text that is certain."""

    def finish(self) -> str:
        """Return the text still held back."""


class AnswerFilter:
    """The filters for one answer, whose result does not depend on how the stream is chunked.

    The status object is unpacked if the model was asked for it (`wants_status`). `filters_output`
    removes an answer that is nothing but a call, and echoes of the `prompt`. The answer ends at the
    `limit`.
    """

    def __init__(
        self,
        prompt: Sequence[Message] = (),
        *,
        wants_status: bool = False,
        filters_output: bool = False,
        limit: AnswerLimit | None = None,
    ) -> None:
        self._object = ObjectFilter(wants_status=wants_status, drops_calls=filters_output)
        self._echo = PromptEchoFilter(prompt) if filters_output else None
        self._limit = SentenceLimit(limit) if limit else None
        stages: dict[str, _Stage | None] = {
            "object": self._object if wants_status or filters_output else None,
            "prompt echo": self._echo,
            "sentence limit": self._limit,
        }
        self._stages = {name: stage for name, stage in stages.items() if stage}
        self._removed: Counter[str] = Counter()  # characters by stage
        self.shown = ""

    @property
    def status(self) -> Status | None:
        """The status that the model gave, known after `finish`."""
        return self._object.status

    @property
    def silent(self) -> bool:
        """True if the model chose to say nothing, known after `finish`."""
        return self._object.silent

    @property
    def has_ended(self) -> bool:
        """True if the rest of the stream can be discarded: the sentence limit is reached, or the
        model is repeating its prompt."""
        return any(stage.has_ended for stage in (self._echo, self._limit) if stage)

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters that have removed something, each with the number of characters; known after
        `finish`."""
        removed = self._removed.items()
        return tuple(f"{name}: {count:,} characters" for name, count in removed if count)

    def feed(self, text: str) -> str:
        """Return the text that can be shown now."""
        return self._pass_on(text, final=False)

    def finish(self) -> str:
        """Return the remaining text that can be shown, after the last piece."""
        return self._pass_on("", final=True)

    def _pass_on(self, text: str, *, final: bool) -> str:
        for name, stage in self._stages.items():
            out = stage.feed(text) + (stage.finish() if final else "")
            self._removed[name] += len(text) - len(out)
            text = out
        self.shown += text
        return text
