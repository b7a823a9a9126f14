"""Responses of the agent server: their schemas, their errors, and the assembly of a reply.

`AnswerFilter` unpacks the object by which a model may stay silent and, of models that need it,
ends the answer where they recite their prompt, or after some sentences. That needs the question:
all else in an answer, such as thoughts and calls, the agent server has read.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx2
from pydantic import AliasChoices, BaseModel, Field, ValidationError
from pydantic_core import from_json

from llm.messages.errors import (
    BadEngine,
    BudgetSpent,
    Busy,
    ContextTooLong,
    KeyRefused,
    ModelError,
    RequestRejected,
    TimedOut,
    Unreachable,
)
from llm.messages.message import OUR_TAGS, Message, ModelReply, ToolCall, escape_tags
from storage.usage.usage import TokenUsage
from terrarium.http.client import EventData, EventTooLong
from terrarium.markdown_code import CodeSplitter


class FunctionPart(BaseModel):
    """A fragment of the function of a tool call."""

    name: str | None = None
    arguments: str | None = None


class CallPart(BaseModel):
    """A fragment of tool call number `index`; calls of an unstreamed answer have no number."""

    index: int | None = None
    id: str | None = None
    function: FunctionPart = Field(default_factory=FunctionPart)


class Delta(BaseModel):
    """The part of the answer that one chunk adds."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPart] | None = None


class ErrorPart(BaseModel):
    """An OpenAI error object."""

    message: str = "no reason given"
    code: str | int | None = None


class Token(BaseModel):
    """A token of an answer in a chat, and the natural logarithm of its probability."""

    token: str
    logprob: float


class TokenProbabilities(BaseModel):
    """The tokens of an answer in a chat, or the same of a continued text as parallel lists."""

    content: list[Token] | None = None
    tokens: list[str] = []
    token_logprobs: list[float | None] = []


class Choice(BaseModel):
    """The only choice that is requested: the `text` that continues one or, in a chat, the delta,
    which is the `message` of an unstreamed answer."""

    text: str = ""
    delta: Delta = Field(default_factory=Delta, validation_alias=AliasChoices("delta", "message"))
    finish_reason: str | None = None
    logprobs: TokenProbabilities | None = None

    def probabilities(self) -> tuple[tuple[str, float], ...]:
        """Return the tokens with their probabilities, none if the server did not send them."""
        if self.logprobs is None:
            return ()
        tokens = [(each.token, each.logprob) for each in self.logprobs.content or ()]
        known = zip(self.logprobs.tokens, self.logprobs.token_logprobs, strict=False)
        tokens += [(token, logprob) for token, logprob in known if logprob is not None]
        return tuple((token, math.exp(logprob)) for token, logprob in tokens)


class Chunk(BaseModel):
    """One server-sent event of a streamed chat, a whole unstreamed answer, or an error."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: ErrorPart | None = None


MISCONFIGURED = "engine_misconfigured"
"""The code of errors that only the agent server's operator can fix."""

_TOO_LONG = "context_length_exceeded"
_SPENT_CODES = ("budget_exhausted", "quota_exceeded")
_LONG_WAIT = 120.0  # seconds; per-minute quotas, with the same code, recover sooner
_MAX_BODY_SIZE = 64 * 1024 * 1024  # bytes of an unstreamed answer


async def read_body(response: httpx2.Response) -> bytes:
    """Return the whole body. Raises RequestRejected for more than 64 MiB."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > _MAX_BODY_SIZE:
            raise RequestRejected(f"more than {_MAX_BODY_SIZE} bytes", response.status_code)
    return bytes(body)


async def read_error(response: httpx2.Response, url: str) -> ModelError:
    """Read the body of an unsuccessful response of the server at `url`; return its error."""
    content, status = await read_body(response), response.status_code
    try:
        reason = Chunk.model_validate_json(content).error
    except ValidationError:
        reason = None
    if reason is None:
        reason = ErrorPart(message=json.dumps(content[:200].decode(errors="replace")))
    if status in (401, 403):
        return KeyRefused(url)
    if reason.code == MISCONFIGURED:
        return BadEngine(reason.message)
    if reason.code == _TOO_LONG:
        return ContextTooLong(reason.message)
    if status == 429:
        # In its form as an HTTP date (RFC 9110, 10.2.3) it counts as one second.
        after = response.headers.get("retry-after", "")
        wait = float(after) if after.isdigit() else 1.0
        is_spent = reason.code in _SPENT_CODES and wait > _LONG_WAIT
        return (BudgetSpent if is_spent else Busy)(reason.message, wait)
    if status in (408, 504):
        return TimedOut(reason.message)
    if status in (500, 502, 503):
        return Unreachable(reason.message)
    return RequestRejected(reason.message, status)


# A sentence ends only once the whitespace after it has arrived: "3." may become "3.5".
_END = re.compile(r"(?<![.\s])[.!?…]+[\"'”’)\]*]*(?=\s)|\n\s*\n")
# Abbreviations, initials and list numbers, whose full stop ends no sentence.
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|ca|approx|no|st|dr|mr|mrs|ms|prof|jr|sr|[a-z])|^\s*\d+)\.$",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(r":[*_]*\s*\Z")


class SentenceLimit:
    """Streaming filter that ends an answer after a number of `sentences`.

    A sentence that ends with a colon continues with what it announces, and a fenced code block
    belongs to the sentence before it.
    """

    def __init__(self, sentences: int) -> None:
        self._left = sentences
        self._held = ""
        self._in_code = False
        self.has_ended = False

    def feed(self, text: str, *, final: bool = False) -> str:
        """Return the part of the text that is within the limit; after the `final` piece, all."""
        self._held += text
        out = ""
        while not self.has_ended and (end := _END.search(self._held)):
            sentence, self._held = self._held[: end.end()], self._held[end.end() :]
            out += sentence
            self._in_code ^= sentence.count("```") % 2 == 1
            if self._in_code or _ANNOUNCED.search(sentence):
                continue
            if (out.strip() or end[0].strip()) and not _NO_END.search(sentence):
                self._left -= 1
                self.has_ended = self._left <= 0
        if self.has_ended:
            self._held = ""
            return out.rstrip()
        if final:
            out, self._held = out + self._held, ""
        return out


_MARK = re.compile(  # a tag of prompts, or the prefix of a log line
    rf"(?:(?:<|‹|&lt;)(?P<closing>[ \t]*/)?[ \t]*(?:{OUR_TAGS})\b"
    r"[^<>\n]{0,60}(?:>|&gt;|(?=\n)))"
    r"|^[ \t>]*\[(?P<stamp>(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?)(?: UTC)?\][ \t]*"
    r"(?P<said>(?:(?:<|‹|&lt;)[^<>\s]{1,40}(?:>|&gt;)|\* \S{1,40}|-[^\s-]\S{0,40}-|\*\*\*)[ \t]*)",
    re.IGNORECASE | re.MULTILINE,
)
_MARK_BEGUN = re.compile(  # what may become one, at the end of a text
    r"(?:<|‹|&(?:l(?:t;?)?)?)[ \t/a-z_=\"']{0,60}\Z|^[ \t>]*(?:\[[^\n]{0,80})?\Z|\Z",
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

    def feed(self, text: str, *, final: bool = False) -> str:
        """Return the part of the stream that is certain to be shown; after the `final` piece, all
        that may be."""
        out = ""
        for segment in [*self._code.feed(text), *(self._code.finish() if final else ())]:
            if not segment.is_code:
                self._held += segment.text
            out += self._advance(final=segment.is_code)
            if segment.is_code and not self.has_ended:
                self._shown, self._last = True, segment.text[-1]
                out += segment.text
        return out + (self._advance(final=True) if final else "")

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


_RESPONSE = frozenset({"response", "status"})
_CALLS = ({"name", "arguments"}, {"name", "parameters"})
_DECODER = json.JSONDecoder(strict=False)


class ObjectFilter:
    """Streaming reader of an answer that is one JSON object: holds it back while it may be.

    An object with the `response` is unpacked with `may_be_silent`; at the end, `silent` says that
    it is empty. With `drops_calls`, the call of a tool, where there is none, is nothing. Any
    other text, or object, passes as it is.
    """

    has_ended = False

    def __init__(self, *, may_be_silent: bool, drops_calls: bool) -> None:
        self._may_be_silent, self._drops_calls = may_be_silent, drops_calls
        keys = [*(_RESPONSE if may_be_silent else ()), *(["name"] if drops_calls else ())]
        self._beginnings = [f'{{"{key}"' for key in keys]
        self._held = ""
        self._plain = not keys
        self.silent = False

    def feed(self, text: str, *, final: bool = False) -> str:
        """Return the part of the stream that is certainly visible text; after the `final` piece,
        all that is."""
        self._held += text
        begun = "".join(self._held[:100].split())
        head = begun.removeprefix("```").removeprefix("json")
        may_be = any(key.startswith(head) or head.startswith(key) for key in self._beginnings)
        self._plain = self._plain or not (may_be or "```json".startswith(begun))
        if self._plain:
            return self._let_go()
        return self.unpack() if final else ""

    def unpack(self) -> str:
        """Return the visible text of the object that was held back."""
        start = self._held.find("{")
        if start < 0:
            return self._let_go()
        value: dict[str, Any] = {}
        try:
            value, end = _DECODER.raw_decode(self._held, start)
            rest, is_cut = self._held[end:], False
        except (ValueError, RecursionError):
            rest, is_cut = "", True
            try:
                value = from_json(self._held[start:], allow_partial="trailing-strings")
            except ValueError:
                return self._let_go()
        if rest.strip("` \t\r\n"):  # it may be in a fence
            return self._let_go()
        if self._drops_calls and value.keys() in _CALLS:
            return ""
        said = value.get("response")
        is_response = self._may_be_silent and value.keys() <= _RESPONSE
        if not (is_response and isinstance(said, str)):
            return self._let_go()
        self.silent = not is_cut and not said.strip()
        return said.strip()

    def _let_go(self) -> str:
        text, self._held = self._held, ""
        return text


class AnswerFilter:
    """The filters for one answer, whose result does not depend on how the stream is chunked.

    The response is unpacked of a model that was told how to stay silent (`may_be_silent`).
    `filters_output` removes an answer that is nothing but a call, and echoes of the `prompt`. The
    answer ends after `limit` sentences. `shown` is all text so far that can be shown.
    """

    def __init__(
        self,
        prompt: Sequence[Message] = (),
        *,
        may_be_silent: bool = False,
        filters_output: bool = False,
        limit: int | None = None,
    ) -> None:
        self._object = ObjectFilter(may_be_silent=may_be_silent, drops_calls=filters_output)
        self._stages: dict[str, ObjectFilter | PromptEchoFilter | SentenceLimit] = {
            "object": self._object
        }
        if filters_output:
            self._stages["prompt echo"] = PromptEchoFilter(prompt)
        if limit:
            self._stages["sentence limit"] = SentenceLimit(limit)
        self._removed: Counter[str] = Counter()  # characters by stage
        self.shown = ""

    @property
    def silent(self) -> bool:
        """True if the model chose to say nothing, known after `finish`."""
        return self._object.silent

    @property
    def has_ended(self) -> bool:
        """True if the rest of the stream can be discarded: the sentence limit is reached, or the
        model is repeating its prompt."""
        return any(stage.has_ended for stage in self._stages.values())

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters that removed something, with the number of characters, after `finish`."""
        removed = self._removed.items()
        return tuple(f"{name}: {count:,} characters" for name, count in removed if count)

    def feed(self, text: str, *, final: bool = False) -> str:
        """Return the text that can be shown now; of the `final` piece, all that can be."""
        for name, stage in self._stages.items():
            out = stage.feed(text, final=final)
            self._removed[name] += len(text) - len(out)
            text = out
        self.shown += text
        return text

    def finish(self) -> str:
        """Return the remaining text that can be shown, after the last piece."""
        return self.feed("", final=True)


OnText = Callable[[str], Awaitable[None]]
"""Receives each piece of an answer as it streams. Within a turn, "" means that the answer starts
over, as the text so far came with tool calls."""

_DONE = b"[DONE]"  # the data of the last event of a stream
_FAREWELL = 0.05  # seconds that the end of a response may take after its last event
# Characters of an answer, and of its thoughts; nobody reads more, and the end may never come.
_MAX_ANSWER_LENGTH = 100_000


class ResponseAccumulator:
    """Assembles a reply from the events of a response; each piece of its text that passes the
    filter is given to `on_text`."""

    def __init__(self, on_text: OnText | None, answer_filter: AnswerFilter) -> None:
        self._on_text = on_text
        self._filter = answer_filter
        self._thought = ""
        self._left = _MAX_ANSWER_LENGTH  # of the text, in characters
        self._calls: dict[int, ToolCall] = {}
        self._usage = TokenUsage()
        self._pieces = 0
        self._finish_reason: str | None = None
        self._done = False

    @property
    def is_full(self) -> bool:
        """True if enough of the answer has arrived; the rest is left unread."""
        return self._left <= 0 or self._filter.has_ended

    @property
    def has_shown_text(self) -> bool:
        """True if a piece was given to `on_text`, so that a retry would show it twice."""
        return bool(self._on_text and self._filter.shown)

    async def read(self, response: httpx2.Response) -> None:
        """Read a stream until the answer is full, or an unstreamed answer. Raises ModelError."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if kind == "application/json":
            await self._add(await read_body(response))
        elif kind == "text/event-stream":
            events = EventData()
            pieces = response.aiter_raw()
            while not self.is_full and (piece := await anext(pieces, b"")):
                try:
                    arrived = events.feed(piece)
                except EventTooLong as error:
                    raise RequestRejected("an event without an end", 200) from error
                for data in arrived:
                    await self._add(data)
                if _DONE in arrived:
                    # Only a response that was read to its end leaves its connection to the next.
                    with suppress(TimeoutError, httpx2.HTTPError):
                        async with asyncio.timeout(_FAREWELL):
                            await anext(pieces, b"")
                    break
        else:
            raise RequestRejected(f"{kind or 'something'} is no answer of an OpenAI API", 200)
        if not self._done and not self.is_full:
            raise Unreachable("the answer ended before its end")
        await self._show(self._filter.finish())

    async def _add(self, data: bytes) -> None:
        """Process the data of one event, or an unstreamed answer."""
        if data == _DONE:
            self._done = True
            return
        try:
            chunk = Chunk.model_validate_json(data)
        except ValidationError as error:
            raise RequestRejected("not a chunk of the chat API", 200) from error
        if reason := chunk.error:  # after status 200
            failed = ContextTooLong if reason.code == _TOO_LONG else Unreachable
            raise failed(reason.message)
        if chunk.usage:
            self._usage = TokenUsage.from_wire(chunk.usage)
        for choice in chunk.choices or ():
            delta = choice.delta
            self._pieces += 1
            self._thought = (self._thought + (delta.reasoning_content or ""))[:_MAX_ANSWER_LENGTH]
            if piece := (delta.content or "")[: max(0, self._left)]:
                self._left -= len(piece)
                await self._show(self._filter.feed(piece))
            for position, part in enumerate(delta.tool_calls or ()):
                index = position if part.index is None else part.index
                # A made-up id for servers that send none: tool results refer to calls by id.
                known = self._calls.get(index) or ToolCall(f"call_{uuid.uuid4().hex[:12]}", "", "")
                self._calls[index] = ToolCall(
                    part.id or known.id,
                    part.function.name or known.name,
                    known.arguments + (part.function.arguments or ""),
                )
            # A finish reason ends the answer too, for servers that send no [DONE].
            if choice.finish_reason is not None:
                self._finish_reason, self._done = choice.finish_reason, True

    async def _show(self, text: str) -> None:
        if text and self._on_text:
            await self._on_text(text)

    def reply(self) -> ModelReply:
        """Return the whole reply."""
        finish_reason = "overlong" if self._left <= 0 else self._finish_reason or "stop"
        text, usage = self._filter.shown.lstrip(), self._usage
        if self.is_full and not usage.prompt:  # the server could not report it yet
            usage = TokenUsage(0, self._pieces)
        return ModelReply(
            # What follows a text that was cut off may continue its last line.
            text if finish_reason == "length" else text.rstrip(),
            self._thought.strip(),
            tuple(call for _, call in sorted(self._calls.items())),
            usage,
            self._filter.silent,
            finish_reason,
            self._filter.filters,
        )
