"""The HTTP client of the agent server: one streamed chat call, one token count."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import stamina
from pydantic import BaseModel, ValidationError

from llm.client.response import OK, Answer, Gathering, answering, take
from llm.client.response import OnText as OnText
from llm.client.schemas import CountAnswer, EmbeddingsAnswer, ModelCard
from llm.client.settings import AgentSettings
from llm.messages.errors import Busy, Refused, TimedOut, Unreachable
from llm.messages.message import Message, Reply, Usage, wire
from llm.parsing.stream_parser import Utterance
from terrarium.http.pool import Connections
from terrarium.sse import EventTooLong

Priority = Literal["interactive", "background"]
ToolChoice = Literal["auto", "none"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_CONNECT = 2.0  # seconds
_PATIENCE = 5.0  # seconds in which a server that is away or full is asked again
_SHORTEST_WAIT = 0.1
_UNKNOWN_WINDOW = 8_192  # tokens, of a server that cannot count them
_CANNOT_COUNT = (404, 405, 501)
_MISSING = 404
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens of a prompt, and how many the model's window holds."""

    tokens: int
    window: int


@dataclass(frozen=True, slots=True)
class Call:
    """What goes with every request of one run: whose it is, how urgent, and what differs from the
    configuration: the model, the temperature, the longest answer in tokens and in sentences.

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
    sentences: int | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def headers(self) -> dict[str, str]:
        """As HTTP headers; a session name may have any letters."""
        session = self.session.encode("ascii", "backslashreplace").decode()
        session = "".join(char if char.isprintable() else "?" for char in session)
        return {"x-session-id": session, "x-priority": self.priority, "x-request-id": self.id}


Spend = Callable[[Call, Usage], None]
"""Is told what every answer of the model has cost."""


class AgentClient:
    """A connection to the agent server. Get one with `opened`."""

    def __init__(
        self, connections: Connections, settings: AgentSettings, spend: Spend | None = None
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._spend = spend

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, settings: AgentSettings, spend: Spend | None = None
    ) -> AsyncIterator[AgentClient]:
        """A client for the server that `settings` name; `spend` is told what answers cost.

        Raises ConfigError for a key that HTTP cannot carry.
        """
        key = settings.api_key
        own = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        connections = Connections(
            settings.api_url.rstrip("/").removesuffix("/v1"),
            own | {"content-type": "application/json"},
            patience=settings.model_timeout,
            connect=_CONNECT,
            proxied=False,
        )
        try:
            yield cls(connections, settings, spend)
        finally:
            await connections.close()

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

        Calls of the `tools` that it writes as text are calls too, when the server has found none.
        `response_format` is OpenAI's field of that name, for an answer that has to be JSON.

        A server that is away or full is asked again for some seconds, as long as `on_text` has
        been given no piece. Raises ModelError.
        """
        body = self._body(messages, call, tools, tool_choice)
        if response_format:
            body["response_format"] = dict(response_format)
        tried: list[Gathering] = []

        async def attempt() -> None:
            utterance = Utterance(
                tools, messages, sentences=call.sentences, data=response_format is not None
            )
            tried.append(Gathering(on_text, utterance, messages))
            await self._stream(body, call, tried[-1])

        try:
            async with asyncio.timeout(self._settings.model_timeout):
                await _patiently(attempt, tried)
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
        try:
            content = await _patiently(lambda: self._ask("POST", "/tokenize", body))
        except Refused as error:
            if error.status not in _CANNOT_COUNT:
                raise
            return Count(len(json.dumps(body, ensure_ascii=False)) // 3, _UNKNOWN_WINDOW)
        answer = _checked(CountAnswer, content)
        return Count(answer.count, answer.max_model_len)

    async def embed(
        self, texts: Sequence[str], call: Call, *, query: bool = False
    ) -> tuple[str, list[list[float]]]:
        """The vectors of texts, or of one question (`query`) about such texts, and the name of
        the model that made them. Raises ModelError."""
        body = {"input": list(texts), "input_type": "query" if query else "passage"}
        content = await _patiently(lambda: self._ask("POST", "/v1/embeddings", body, call))
        answer = _checked(EmbeddingsAnswer, content)
        if len(answer.data) != len(texts):
            raise Refused("not a vector for each text", 200)
        return answer.model, answer.vectors()

    async def model(self, name: str) -> ModelCard | None:
        """What the server says of a model or an alias; None when it has none of that name.

        Raises ModelError.
        """
        try:
            async with asyncio.timeout(_CONNECT):
                content = await self._ask("GET", f"/v1/models/{quote(name)}")
        except TimeoutError as error:
            raise TimedOut(f"no answer in {_CONNECT:g} s") from error
        except Refused as error:
            if error.status == _MISSING:
                return None
            raise
        return _checked(ModelCard, content)

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, call: Call | None = None
    ) -> bytes:
        """The body of a successful answer. Raises ModelError."""
        async with self._answering(method, path, body, call) as answer:
            if answer.status != OK:
                raise await answer.error()
            return await answer.whole()

    def _answering(
        self, method: str, path: str, body: dict[str, Any] | None, call: Call | None
    ) -> AbstractAsyncContextManager[Answer]:
        content = None if body is None else _ENCODER.encode(body).encode("utf-8", "replace")
        headers = call.headers() if call else {}
        return answering(self._connections, method, path, content, headers)

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

    async def _stream(self, body: dict[str, Any], call: Call, gathering: Gathering) -> None:
        async with self._answering("POST", "/v1/chat/completions", body, call) as answer:
            if answer.status != OK:
                raise await answer.error()
            try:
                await take(answer, gathering)
            except EventTooLong as error:
                raise Refused("an event without an end", OK) from error
            await gathering.finish()


async def _patiently(work: Callable[[], Awaitable[T]], tried: Sequence[Gathering] = ()) -> T:
    """What `work` returns, asked again while the server is away or full and nobody has read a
    piece of an answer."""
    try:
        return await work()
    except (Busy, Unreachable) as error:
        failed = [error]

    def wait(error: Exception) -> bool | float:
        if any(gathering.given for gathering in tried):
            return False
        if isinstance(error, Busy):
            patient = error.retry_after <= _PATIENCE
            return patient and max(error.retry_after, _SHORTEST_WAIT)
        return isinstance(error, Unreachable)

    async def again() -> T:
        if failed:  # that was the first attempt; all others wait
            raise failed.pop()
        return await work()

    caller = stamina.AsyncRetryingCaller(
        attempts=None, timeout=_PATIENCE, wait_initial=0.1, wait_max=1.0, wait_jitter=0.1
    )
    return await caller(wait, again)


def _either(wanted: T | None, otherwise: T) -> T:
    return otherwise if wanted is None else wanted


def _checked(kind: type[M], content: bytes) -> M:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise Refused("not an answer of the server's API", OK) from error
