"""The HTTP client of the agent server: one streamed chat call, one token count."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx2
import stamina
from pydantic import ValidationError

from llm.errors import Busy, Refused, TimedOut, Unreachable
from llm.message import Message, Reply, ToolCall, Usage, wire
from llm.settings import AgentSettings
from llm.sse import EventData, EventTooLong
from llm.thinking import ThinkSplitter
from llm.wire import (
    CallPart,
    Chunk,
    CountAnswer,
    Delta,
    EmbeddingsAnswer,
    ModelCard,
    error_in_stream,
    error_of,
)

OnText = Callable[[str], Awaitable[None]]
"""Is given each piece of a text as it is written; in a turn, an empty one says that the model
begins anew, as what it wrote before came with tool calls."""
Priority = Literal["interactive", "background"]
ToolChoice = Literal["auto", "none"]

T = TypeVar("T")

_CONNECT = 2.0  # seconds
_PATIENCE = 5.0  # seconds in which a server that is away or full is asked again
_SHORTEST_WAIT = 0.1
_LONGEST = 100_000  # characters of an answer; nobody reads the rest, and its end may never come
_UNKNOWN_WINDOW = 8_192  # tokens, of a server that cannot count them
_CANNOT_COUNT = (404, 405, 501)


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens of a prompt, and how many the model's window holds."""

    tokens: int
    window: int


@dataclass(frozen=True, slots=True)
class Call:
    """What goes with every request of one run: whose it is, how urgent, and what differs from the
    configuration: the model, the temperature, the longest answer in tokens.

    `purpose` says what its tokens are spent on ("answer", or a kind of work beside answers, as
    "summary", "facts", "review"), and `room` where.
    """

    session: str
    priority: Priority = "interactive"
    model: str = ""
    purpose: str = "answer"
    room: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def headers(self) -> dict[str, str]:
        """As HTTP headers; a session name may have any letters."""
        session = self.session.encode("ascii", "backslashreplace").decode()
        return {"x-session-id": session, "x-priority": self.priority, "x-request-id": self.id}


Spend = Callable[[Call, Usage], None]
"""Is told what every answer of the model has cost."""


class AgentClient:
    """A connection to the agent server. Get one with `opened`."""

    def __init__(
        self, http: httpx2.AsyncClient, settings: AgentSettings, spend: Spend | None = None
    ) -> None:
        self._http = http
        self._settings = settings
        self._spend = spend

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, settings: AgentSettings, spend: Spend | None = None
    ) -> AsyncIterator[AgentClient]:
        """A client for the server that `settings` name; `spend` is told what answers cost."""
        key = settings.api_key
        async with httpx2.AsyncClient(
            base_url=settings.api_url.rstrip("/").removesuffix("/v1"),
            headers={"authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            timeout=httpx2.Timeout(settings.model_timeout, connect=_CONNECT),
            trust_env=False,
        ) as http:
            yield cls(http, settings, spend)

    def configure(self, settings: AgentSettings) -> None:
        """Go by other settings from now on; the server stays the one it was."""
        self._settings = settings

    async def chat(
        self,
        messages: Sequence[Message],
        call: Call,
        *,
        tools: Sequence[dict[str, Any]] = (),
        tool_choice: ToolChoice = "auto",
        on_text: OnText | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Ask the model and gather its answer, `on_text` given each piece meant for people.

        `response_format` is OpenAI's field of that name, for an answer that has to be JSON.

        A server that is away or full is asked again for some seconds, as long as `on_text` has
        been given no piece. Raises ModelError.
        """
        body = self._body(messages, call, tools, tool_choice)
        if response_format:
            body["response_format"] = dict(response_format)
        tried: list[_Gathering] = []
        try:
            async with asyncio.timeout(self._settings.model_timeout):
                async for attempt in _patiently(tried):
                    with attempt:
                        tried.append(_Gathering(on_text))
                        await self._stream(body, call, tried[-1])
        except TimeoutError as error:
            raise TimedOut(f"no answer in {self._settings.model_timeout:g} s") from error
        reply = tried[-1].reply()
        if self._spend:
            self._spend(call, reply.usage)
        return reply

    async def count(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], model: str = ""
    ) -> Count:
        """How many tokens the model would read. Estimated for a server that cannot tell.

        Raises ModelError.
        """
        body: dict[str, Any] = {
            "model": model or self._settings.model,
            "messages": [wire(message) for message in messages],
        }
        if tools:
            body["tools"] = list(tools)
        async for attempt in _patiently(()):
            with attempt, _translated():
                response = await self._http.post("/tokenize", json=body)
                if response.status_code not in (200, *_CANNOT_COUNT):
                    raise error_of(response)
        if response.status_code in _CANNOT_COUNT:
            return Count(len(json.dumps(body, ensure_ascii=False)) // 3, _UNKNOWN_WINDOW)
        with _translated():
            answer = CountAnswer.model_validate_json(response.content)
        return Count(answer.count, answer.max_model_len)

    async def embed(
        self, texts: Sequence[str], call: Call, *, query: bool = False
    ) -> tuple[str, list[list[float]]]:
        """The vectors of texts, or of one question (`query`) about such texts, and the name of
        the model that made them. Raises ModelError."""
        body = {"input": list(texts), "input_type": "query" if query else "passage"}
        async for attempt in _patiently(()):
            with attempt, _translated():
                response = await self._http.post(
                    "/v1/embeddings", json=body, headers=call.headers()
                )
                if response.status_code != 200:
                    raise error_of(response)
        with _translated():
            answer = EmbeddingsAnswer.model_validate_json(response.content)
        if len(answer.data) != len(texts):
            raise Refused("not a vector for each text", 200)
        return answer.model, answer.vectors()

    async def model(self, name: str) -> ModelCard | None:
        """What the server says of a model or an alias; None when it has none of that name.

        Raises ModelError.
        """
        with _translated():
            response = await self._http.get(f"/v1/models/{quote(name)}", timeout=_CONNECT)
            if response.status_code == 404:
                return None
            if response.status_code != 200:
                raise error_of(response)
            return ModelCard.model_validate_json(response.content)

    def _body(
        self,
        messages: Sequence[Message],
        call: Call,
        tools: Sequence[dict[str, Any]],
        choice: ToolChoice,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": call.model or self._settings.model,
            "messages": [wire(message) for message in messages],
            "temperature": _either(call.temperature, self._settings.temperature),
            "max_tokens": _either(call.max_tokens, self._settings.max_tokens),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return body | {"tools": list(tools), "tool_choice": choice} if tools else body

    async def _stream(self, body: dict[str, Any], call: Call, gathering: _Gathering) -> None:
        with _translated():
            async with self._http.stream(
                "POST", "/v1/chat/completions", json=body, headers=call.headers()
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_of(response)
                await _take(response, gathering)
                await gathering.finish()


class _Gathering:
    """The answer as far as it has come."""

    def __init__(self, on_text: OnText | None) -> None:
        self._on_text = on_text
        self._splitter = ThinkSplitter()
        self._shown = ""
        self._thought = ""
        self._calls: dict[int, ToolCall] = {}
        self._usage = Usage()
        self._done = False

    @property
    def full(self) -> bool:
        """Whether enough has come; the rest is left unread."""
        return len(self._shown) + len(self._thought) >= _LONGEST

    @property
    def given(self) -> bool:
        """Whether somebody has read a piece, so that asking again would say it twice."""
        return bool(self._on_text and self._shown)

    async def add(self, data: bytes) -> None:
        """Take in the data of one server-sent event."""
        if data == b"[DONE]":
            self._done = True
            return
        chunk = _chunk(data)
        if chunk.error:
            raise error_in_stream(chunk.error)
        if chunk.usage:
            self._usage = chunk.usage.usage()
        for choice in chunk.choices:
            await self._add_delta(choice.delta)
            self._done = self._done or choice.finish_reason is not None

    async def finish(self) -> None:
        """Give what was held back. Raises Unreachable when the stream ended too early."""
        if not self._done and not self.full:
            raise Unreachable("the answer ended before its end")
        last = self._splitter.finish()
        self._thought += last.thought
        await self._show(last.shown)

    def reply(self) -> Reply:
        """The whole answer."""
        calls = tuple(call for _, call in sorted(self._calls.items()))
        return Reply(self._shown.strip(), self._thought.strip(), calls, self._usage)

    async def _add_delta(self, delta: Delta) -> None:
        parted = self._splitter.feed(delta.content or "")
        self._thought += (delta.reasoning_content or "") + parted.thought
        await self._show(parted.shown)
        for position, part in enumerate(delta.tool_calls or ()):
            index = position if part.index is None else part.index
            self._calls[index] = _joined(self._calls.get(index), part)

    async def _show(self, text: str) -> None:
        text = text[: _LONGEST - len(self._shown)]
        self._shown += text
        if text and self._on_text:
            await self._on_text(text)


async def _take(response: httpx2.Response, gathering: _Gathering) -> None:
    """Gather a stream of events, or the whole answer of a server that does not stream."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "application/json":
        await gathering.add(await response.aread())
    elif kind == "text/event-stream":
        events = EventData()
        async for piece in response.aiter_bytes():
            for data in events.feed(piece):
                await gathering.add(data)
            if gathering.full:
                return
    else:
        raise Refused(f"{kind or 'something'} is no answer of an OpenAI API", 200)


def _chunk(data: bytes) -> Chunk:
    try:
        return Chunk.model_validate_json(data)
    except ValidationError as error:
        raise Refused("not a chunk of the chat API", 200) from error


def _joined(call: ToolCall | None, part: CallPart) -> ToolCall:
    """A tool call with one more piece of it."""
    known = call or ToolCall(f"call_{uuid.uuid4().hex[:12]}", "", "")
    return ToolCall(
        part.id or known.id,
        part.function.name or known.name,
        known.arguments + (part.function.arguments or ""),
    )


def _patiently(tried: Sequence[_Gathering]) -> AsyncIterator[stamina.Attempt]:
    """Attempts while the server is away or full and nobody has read a piece of an answer."""

    def wait(error: Exception) -> bool | float:
        if any(gathering.given for gathering in tried):
            return False
        if isinstance(error, Busy):
            patient = error.retry_after <= _PATIENCE
            return patient and max(error.retry_after, _SHORTEST_WAIT)
        return isinstance(error, Unreachable)

    context = stamina.retry_context(
        on=wait,
        attempts=None,
        timeout=_PATIENCE,
        wait_initial=0.1,
        wait_max=1.0,
        wait_jitter=0.1,
    )
    return aiter(context)


def _either(wanted: T | None, otherwise: T) -> T:
    return otherwise if wanted is None else wanted


@contextmanager
def _translated() -> Iterator[None]:
    """The HTTP library's errors as ours."""
    try:
        yield
    except (httpx2.ReadTimeout, httpx2.PoolTimeout) as error:
        raise TimedOut(str(error)) from error
    except httpx2.RequestError as error:
        raise Unreachable(f"{type(error).__name__}: {error}") from error
    except (ValidationError, EventTooLong) as error:
        raise Refused("not an answer of the server's API", 200) from error
