"""HTTP responses of the agent server: their schemas, their errors, and the assembly of a reply."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from statistics import fmean
from typing import Any

import httpx2
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from llm.client.answer_filter import AnswerFilter
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
from llm.messages.message import Message, ModelReply, ToolCall
from storage.usage.usage import TokenUsage
from terrarium.http.client import EventData


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


class TokenPart(BaseModel):
    """A token's natural logarithm of its probability."""

    logprob: float


class Logprobs(BaseModel):
    """The probabilities of the tokens of a delta's content."""

    content: list[TokenPart] | None = None


class Choice(BaseModel):
    """The only choice that is requested; in an unstreamed answer its `message` is the delta."""

    delta: Delta = Field(default_factory=Delta, validation_alias=AliasChoices("delta", "message"))
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class ErrorPart(BaseModel):
    """An OpenAI error object."""

    message: str = "no reason given"
    code: str | int | None = None


class Chunk(BaseModel):
    """One server-sent event of a streamed chat, or a whole unstreamed answer."""

    choices: list[Choice] | None = None
    usage: dict[str, Any] | None = None
    error: ErrorPart | None = None


class Heartbeat(BaseModel):
    """The heartbeat of a tendril, the body of `PUT /v1/tendrils/NAME`."""

    state: str
    tools: list[str]
    pending: int
    tokens_today: int
    counters: dict[str, float] = Field(default_factory=dict)
    gauges: dict[str, float] = Field(default_factory=dict)
    disk_trouble: bool = False


class CountAnswer(BaseModel):
    """The response of `/tokenize`; `max_model_len` is the model's context window in tokens."""

    count: int
    max_model_len: int | None = None


class CapabilitiesPart(BaseModel):
    """The abilities of a model. `tools` is "forced" if it is too small to choose a tool, `vision`
    is true if it accepts images. `chooses_tools` is null until the server has tested whether it
    chooses well when to use a tool."""

    tools: str | None = None
    vision: bool | None = None
    chooses_tools: bool | None = None


class ModelCard(BaseModel):
    """The response of `/v1/models/NAME`; `root` is the model that an alias stands for.

    `max_model_len` and `window` are the tokens of prompt and answer together in one request,
    `parameters` the number of the model's parameters, `prompt_tokens_per_second` the speed at which
    an engine on the server's own processor reads an uncached prompt, `profile` the profile that
    `[model] profile` sets, `weights` the model that is loaded, `gpus` the GPUs that it uses,
    `better` the model that `terrarium model pull` offers for the server's machine. None means
    unknown; servers other than ours may leave all of them out.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None
    window: int | None = None
    parameters: int | None = None
    prompt_tokens_per_second: float | None = None
    profile: str | None = None
    weights: str | None = None
    gpus: list[str] | None = None
    better: str | None = None
    capabilities: CapabilitiesPart = Field(default_factory=CapabilitiesPart)

    @property
    def accepts_images(self) -> bool:
        """True if the server says that the model accepts images."""
        return self.capabilities.vision is True

    @property
    def chooses_tools(self) -> bool | None:
        """True if the model chooses well when to use a tool; None while that is unknown.

        It is assumed of a model whose server does not report it.
        """
        able = self.capabilities
        if able.tools == "forced":
            return False
        # An explicit null means "not tested yet"; an absent field, that the server never tells.
        return able.chooses_tools if "chooses_tools" in able.model_fields_set else True


class VectorPart(BaseModel):
    """The embedding vector of one text."""

    index: int
    embedding: list[float]


class EmbeddingsAnswer(BaseModel):
    """The response of `/v1/embeddings`."""

    model: str
    data: list[VectorPart]

    def vectors(self) -> list[list[float]]:
        """Return the vectors in the order of their texts."""
        return [part.embedding for part in sorted(self.data, key=lambda part: part.index)]


class ErrorAnswer(BaseModel):
    """The body of a response other than 200."""

    error: ErrorPart


MISCONFIGURED = "engine_misconfigured"
"""The code of errors that only the agent server's operator can fix."""

_TOO_LONG = "context_length_exceeded"
_SPENT_CODES = ("budget_exhausted", "quota_exceeded")
_LONG_WAIT = 120.0  # seconds; per-minute quotas, with the same code, recover sooner

OK = 200
FAREWELL = 0.05
"""Seconds within which a response must end after its last event for its connection to be
reused."""

_MAX_BODY_SIZE = 64 * 1024 * 1024  # bytes of an unstreamed answer


class HttpResponse:
    """A response of the server at `url`: its `status`, `headers` and body. Reading raises
    ModelError."""

    def __init__(self, response: httpx2.Response, url: str) -> None:
        self._pieces = response.aiter_raw()
        self._url = url
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """Return what has arrived of the body since the last call; b"" at its end."""
        with _translate_errors():
            return await anext(self._pieces, b"")

    async def read_all(self) -> bytes:
        """Return the whole body. Raises RequestRejected for more than 64 MiB."""
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > _MAX_BODY_SIZE:
                raise RequestRejected(f"more than {_MAX_BODY_SIZE} bytes", self.status)
        return bytes(body)

    async def error(self) -> ModelError:
        """Read the body of a response other than 200; return its error."""
        content = await self.read_all()
        try:
            reason = ErrorAnswer.model_validate_json(content).error
        except ValidationError:
            reason = ErrorPart(message=json.dumps(content[:200].decode(errors="replace")))
        if self.status in (401, 403):
            return KeyRefused(self._url)
        if reason.code == MISCONFIGURED:
            return BadEngine(reason.message)
        if reason.code == _TOO_LONG:
            return ContextTooLong(reason.message)
        if self.status == 429:
            # In its form as an HTTP date (RFC 9110, 10.2.3) it counts as one second.
            after = self.headers.get("retry-after", "")
            wait = float(after) if after.isdigit() else 1.0
            is_spent = reason.code in _SPENT_CODES and wait > _LONG_WAIT
            return (BudgetSpent if is_spent else Busy)(reason.message, wait)
        if self.status in (408, 504):
            return TimedOut(reason.message)
        if self.status in (500, 502, 503):
            return Unreachable(reason.message)
        return RequestRejected(reason.message, self.status)


@asynccontextmanager
async def answering(
    http: httpx2.AsyncClient,
    method: str,
    path: str,
    content: bytes | None,
    headers: Mapping[str, str],
) -> AsyncIterator[HttpResponse]:
    """Send a request and yield its response. A response that was not read to its end is closed,
    which stops a generation under way. Raises ModelError."""
    async with AsyncExitStack() as opened:
        with _translate_errors():
            stream = http.stream(method, path, content=content, headers=headers)
            response = await opened.enter_async_context(stream)
        yield HttpResponse(response, origin(http.base_url))


def origin(url: httpx2.URL) -> str:
    """Return scheme, host and port of a server, without a user name or a password."""
    return str(url.copy_with(userinfo=b"", raw_path=b"")).rstrip("/")


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except httpx2.ConnectTimeout as error:
        raise Unreachable("ConnectTimeout") from error
    except httpx2.TimeoutException as error:
        raise TimedOut("the server is silent") from error
    except httpx2.HTTPError as error:
        raise Unreachable(f"{type(error).__name__}: {error}") from error


OnText = Callable[[str], Awaitable[None]]
"""Receives each piece of an answer as it streams. Within a turn, "" means that the answer starts
over, as the text so far came with tool calls."""

DONE = b"[DONE]"
"""The data of the last event of a stream."""

_CHARACTERS_PER_TOKEN = 4  # per token, roughly
# Characters of an answer, and of its thoughts; nobody reads more, and the end may never come.
_MAX_ANSWER_LENGTH = 100_000


class ResponseAccumulator:
    """Assembles a reply from the events of a response."""

    def __init__(
        self, on_text: OnText | None, text: AnswerFilter, prompt: Sequence[Message] = ()
    ) -> None:
        self._on_text = on_text
        self._prompt = prompt
        self._text = text
        self._thought = ""
        self._length = 0  # of the text, in characters
        self._calls: dict[int, ToolCall] = {}
        self._logprobs: list[float] = []
        self._usage = TokenUsage()
        self._pieces = 0
        self._finish_reason: str | None = None
        self._done = False

    @property
    def is_full(self) -> bool:
        """True if enough of the answer has arrived; the rest is left unread."""
        return self._left <= 0 or self._text.has_ended

    @property
    def reported_prompt_tokens(self) -> int:
        """The tokens of the prompt as the server reports them; 0 if it does not."""
        return self._usage.prompt

    @property
    def _left(self) -> int:
        return _MAX_ANSWER_LENGTH - self._length

    @property
    def has_shown_text(self) -> bool:
        """True if a piece was given to `on_text`, so that a retry would show it twice."""
        return bool(self._on_text and self._text.shown)

    async def add(self, data: bytes) -> None:
        """Process the data of one server-sent event. Raises ModelError."""
        if data == DONE:
            self._done = True
            return
        try:
            chunk = Chunk.model_validate_json(data)
        except ValidationError as error:
            raise RequestRejected("not a chunk of the chat API", OK) from error
        if reason := chunk.error:  # after status 200
            failed = ContextTooLong if reason.code == _TOO_LONG else Unreachable
            raise failed(reason.message)
        if chunk.usage:
            self._usage = TokenUsage.from_wire(chunk.usage)
        for choice in chunk.choices or ():
            if choice.logprobs:
                self._logprobs += [token.logprob for token in choice.logprobs.content or ()]
            await self._add(choice.delta)
            # A finish reason ends the answer too, for servers that send no [DONE].
            if choice.finish_reason is not None:
                self._finish_reason, self._done = choice.finish_reason, True

    async def finish(self) -> None:
        """Show the text that was held back. Raises Unreachable if the stream ended too early."""
        if not self._done and not self.is_full:
            raise Unreachable("the answer ended before its end")
        await self._show(self._text.finish())

    def reply(self) -> ModelReply:
        """Return the whole reply."""
        finish_reason = "overlong" if self._left <= 0 else self._finish_reason or "stop"
        text, usage = self._text.shown.lstrip(), self._usage
        if self.is_full and not usage.prompt:
            # Reading stopped before the server could report it, so it is estimated.
            characters = sum(len(message.get("content") or "") for message in self._prompt)
            usage = TokenUsage(characters // _CHARACTERS_PER_TOKEN, self._pieces)
        return ModelReply(
            # What follows a text that was cut off may continue its last line.
            text if finish_reason == "length" else text.rstrip(),
            self._thought.strip(),
            tuple(call for _, call in sorted(self._calls.items())),
            usage,
            self._text.status,
            self._text.silent,
            finish_reason,
            self._text.filters,
            math.exp(fmean(self._logprobs)) if self._logprobs else 1.0,
        )

    async def _add(self, delta: Delta) -> None:
        self._pieces += 1
        self._thought = (self._thought + (delta.reasoning_content or ""))[:_MAX_ANSWER_LENGTH]
        if piece := (delta.content or "")[: max(0, self._left)]:
            self._length += len(piece)
            await self._show(self._text.feed(piece))
        for position, part in enumerate(delta.tool_calls or ()):
            index = position if part.index is None else part.index
            # A made-up id for servers that send none: tool results refer to calls by id.
            known = self._calls.get(index) or ToolCall(f"call_{uuid.uuid4().hex[:12]}", "", "")
            self._calls[index] = ToolCall(
                part.id or known.id,
                part.function.name or known.name,
                known.arguments + (part.function.arguments or ""),
            )

    async def _show(self, text: str) -> None:
        if text and self._on_text:
            await self._on_text(text)


async def read_stream(answer: HttpResponse, accumulator: ResponseAccumulator) -> None:
    """Feed `accumulator` with a stream of events until it is full, or with an unstreamed answer.

    Raises ModelError.
    """
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "application/json":
        await accumulator.add(await answer.read_all())
    elif kind == "text/event-stream":
        events = EventData()
        while piece := await answer.read():
            arrived = events.feed(piece)
            for data in arrived:
                await accumulator.add(data)
            if accumulator.is_full:
                return
            if DONE in arrived:
                with suppress(TimeoutError, ModelError):
                    async with asyncio.timeout(FAREWELL):
                        await answer.read_all()
                return
    else:
        raise RequestRejected(f"{kind or 'something'} is no answer of an OpenAI API", 200)
