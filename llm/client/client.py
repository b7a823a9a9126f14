"""The HTTP client of the agent server, the catalogue of its models, the reader of questions."""

from __future__ import annotations

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx2
import structlog
from pydantic import BaseModel, ValidationError

from llm.client.profile import ModelCard
from llm.client.response import (
    AnswerFilter,
    Chunk,
    OnText,
    ResponseAccumulator,
    read_body,
    read_error,
)
from llm.client.settings import AgentSettings
from llm.messages.errors import (
    Busy,
    KeyRefused,
    ModelError,
    RequestRejected,
    SetupError,
    TimedOut,
    Unreachable,
)
from llm.messages.message import CHARACTERS_PER_TOKEN, Message, ModelReply, wire
from llm.reading.reading import MOST_TOKENS, Reading, Surroundings, shorten
from storage.usage.usage import TokenUsage
from terrarium.config import ConfigError

Priority = Literal["interactive", "background"]
ToolChoice = Literal["auto", "none"]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_CONNECT_TIMEOUT = 2.0  # seconds
_IDLE_CONNECTIONS = 20
_RETRY_SECONDS = 5.0  # seconds for which a server that is away or full is retried
_MIN_WAIT, _MAX_WAIT = 0.1, 1.0  # seconds between two attempts
_MIN_RATIO, _MAX_RATIO = 1 / 8, 2.0  # tokens per character that a tokenizer may yield
_ESTIMATE_MARGIN = 1.05
_CALL_TIMEOUT_SHARE = 0.4  # of a turn's time, which one call of the model may take, silent or not
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

_log = structlog.get_logger()


class CountAnswer(BaseModel):
    """The response of `/tokenize`; `max_model_len` is the model's context window in tokens. The
    count is `estimated` if the engine behind the server cannot count."""

    count: int
    max_model_len: int | None = None
    estimated: bool = False


class VectorPart(BaseModel):
    """The embedding vector of one text."""

    index: int
    embedding: list[float]


class EmbeddingsAnswer(BaseModel):
    """The response of `/v1/embeddings`, in any order."""

    data: list[VectorPart]


class Heartbeat(BaseModel):
    """The heartbeat of a tendril, the body of `PUT /v1/tendrils/NAME`."""

    state: str
    asked_about: str = ""
    tools: list[str]
    pending: int
    tokens_today: int
    counters: dict[str, float] = {}
    gauges: dict[str, float] = {}
    disk_trouble: bool = False


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of all requests of one run.

    None and "" mean "as configured". `max_tokens` bounds the answer; 0 sends no limit.
    `may_be_silent`, `filters_output` and `limit` are for `AnswerFilter`. Tokens are accounted by
    `purpose` ("answer", or a kind of background work such as "summary", "facts" or "review") and
    `room`. `person` and `channel` are pseudonyms under which the server keeps separate budgets.
    `accepts_images` says whether the model does.
    """

    session: str
    priority: Priority = "interactive"
    model: str = ""
    purpose: str = "answer"
    room: str = ""
    person: str = ""
    channel: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    filters_output: bool = False
    may_be_silent: bool = False
    limit: int | None = None
    accepts_images: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers. In the session name, what a header cannot carry is replaced."""
        # Header values are ASCII without control characters (RFC 9110, 5.5); a line break in the
        # name would begin another header.
        session = self.session.encode("ascii", "backslashreplace").decode()
        session = "".join(char if char.isprintable() else "?" for char in session)
        headers = {"x-session-id": session, "x-priority": self.priority, "x-request-id": self.id}
        headers["x-cuts-answers"] = "yes"  # after enough sentences, or at a person's word
        whose = {"x-person": self.person, "x-channel": self.channel}
        return headers | {name: value for name, value in whose.items() if value}


Spend = Callable[[RequestOptions, TokenUsage], None]
"""Receives the options and the token usage of every answer."""


class AgentClient:
    """A connection to the agent server. Create one with `open`.

    Other `settings` count from their assignment on, except for the server's address and key.
    """

    def __init__(
        self, http: httpx2.AsyncClient, settings: AgentSettings, spend: Spend | None = None
    ) -> None:
        self._http = http
        self.settings = settings
        self._spend = spend
        self._trouble: SetupError | None = None
        self._heartbeat_refused: KeyRefused | None = None
        # Tokens and characters of the latest prompts by model.
        self._sizes: dict[str, tuple[float, float]] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: AgentSettings, spend: Spend | None = None
    ) -> AsyncIterator[AgentClient]:
        """Open a client for the server in `settings`; `spend` receives the usage of each answer.

        Raises ConfigError for an address that is no URL, and for a key that HTTP cannot carry.
        """
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key := settings.key:
            # A line break in the key would begin another header.
            if not (key.isascii() and key.isprintable()):
                raise ConfigError("[agent] api_key has characters that HTTP cannot carry")
            headers["authorization"] = f"Bearer {key}"
        patience = _CALL_TIMEOUT_SHARE * settings.timeout
        try:
            http = httpx2.AsyncClient(
                base_url=settings.server_url,
                headers=headers,
                timeout=httpx2.Timeout(patience, connect=_CONNECT_TIMEOUT),
                limits=httpx2.Limits(max_keepalive_connections=_IDLE_CONNECTIONS),
                trust_env=False,  # no proxy between a tendril and its agent server
                verify=not settings.server_url.startswith("http:"),  # reading certificates is slow
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"[agent] api_url is no URL: {error}") from error
        async with http:
            yield cls(http, settings, spend)

    def __repr__(self) -> str:
        return f"<AgentClient {self._origin}, model {self.settings.model}>"

    @property
    def _origin(self) -> str:
        """The server's address without a user name or a password."""
        return str(self._http.base_url.copy_with(userinfo=b"", raw_path=b"")).rstrip("/")

    @property
    def trouble(self) -> str:
        """Advice for the operator while only they can make the server answer us; else ""."""
        return str(self._trouble or self._heartbeat_refused or "")

    def model_of(self, options: RequestOptions) -> str:
        """Return the name of the model that a request with `options` asks for."""
        return options.model or self.settings.model

    async def chat(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        *,
        tools: Sequence[dict[str, Any]] = (),
        tool_choice: ToolChoice = "auto",
        on_text: OnText | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> ModelReply:
        """Ask the model and return its whole reply; `on_text` receives each piece for people.

        `response_format` is OpenAI's field of that name, for answers in JSON.

        A server that is away or full is retried for a few seconds, unless `on_text` has already
        received a piece. One that refuses the request is asked again without the tools, which may
        be what it cannot do. Raises ModelError.
        """
        body = self._body(messages, options, tools, tool_choice)
        if response_format:
            body["response_format"] = dict(response_format)
            # What a program reads is filtered by nobody.
            options = replace(options, filters_output=False, may_be_silent=False, limit=None)
        tried: list[ResponseAccumulator] = []

        # Each attempt has its own filter and accumulator: nothing of a broken answer remains.
        async def attempt() -> None:
            answer_filter = AnswerFilter(
                messages,
                may_be_silent=options.may_be_silent,
                filters_output=options.filters_output,
                limit=options.limit,
            )
            tried.append(ResponseAccumulator(on_text, answer_filter))
            async with self._request("POST", "/v1/chat/completions", body, options) as response:
                self._trouble = None
                await tried[-1].read(response)

        try:
            async with asyncio.timeout(seconds := _CALL_TIMEOUT_SHARE * self.settings.timeout):
                try:
                    await _with_retry(attempt, tried)
                except RequestRejected as error:
                    # Our server copes with an upstream that refuses tools; others say so in words.
                    is_about_tools = "tool" in str(error).lower()
                    if not tools or not is_about_tools or error.status not in (400, 422):
                        raise
                    _log.warning("models.tools_left_out", error=str(error))
                    del body["tools"], body["tool_choice"]
                    await _with_retry(attempt, tried)
        except TimeoutError as error:
            raise TimedOut(f"no answer in {seconds:g} s") from error
        reply = tried[-1].reply()
        if tokens := reply.usage.prompt:  # 0 if the server does not report it
            characters = _characters(messages, body.get("tools", ()))
            # A server may leave out the tokens from its cache, and images count by other rules.
            plausible = _MIN_RATIO < tokens / characters < _MAX_RATIO
            if plausible and not any("image" in message for message in messages):
                before, length = self._sizes.get(body["model"], (0.0, 0.0))  # they count half
                self._sizes[body["model"]] = (before / 2 + tokens, length / 2 + characters)
        elif tried[-1].is_full:  # reading stopped before the server could report it
            estimated = self.estimate(messages, body.get("tools", ()), body["model"])
            reply = replace(reply, usage=replace(reply.usage, prompt=estimated))
        if self._spend:
            self._spend(options, reply.usage)
        return reply

    async def complete(
        self, prompt: str | Sequence[Message], options: RequestOptions
    ) -> ModelReply:
        """Return the rest of the line that a text begins, or the first line of the answer in a
        chat, with its `tokens`. Raises ModelError."""
        body: dict[str, Any] = {
            "model": self.model_of(options),
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "stop": ["\n"],
        }
        if isinstance(prompt, str):
            path, body = "/v1/completions", {**body, "prompt": prompt, "logprobs": 1}
        else:
            messages = [wire(message) for message in prompt]
            path = "/v1/chat/completions"
            body = {**body, "messages": messages, "logprobs": True}
        answer = await _with_retry(lambda: self.ask(Chunk, "POST", path, body, options))
        if not answer.choices:
            raise RequestRejected("an answer without a choice", 200)
        choice, usage = answer.choices[0], TokenUsage.from_wire(answer.usage or {})
        if self._spend:
            self._spend(options, usage)
        text = (choice.text or choice.delta.content or "").strip()
        finish_reason = choice.finish_reason or "stop"
        tokens = choice.probabilities()
        return ModelReply(text, usage=usage, finish_reason=finish_reason, tokens=tokens)

    async def count(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], model: str = ""
    ) -> CountAnswer:
        """Return the tokens that the model would read, as the server counts them.

        Raises ModelError: RequestRejected if the server cannot count.
        """
        body: dict[str, Any] = {
            "model": model or self.settings.model,
            "messages": [wire(message) for message in messages],
        }
        if tools:
            body["tools"] = list(tools)
        return await _with_retry(lambda: self.ask(CountAnswer, "POST", "/tokenize", body))

    def estimate(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], model: str = ""
    ) -> int:
        """Return about how many tokens the model would read, by the usage reported so far."""
        size = self._sizes.get(model or self.settings.model)
        ratio = size[0] / size[1] if size else 1 / CHARACTERS_PER_TOKEN
        return math.ceil(_characters(messages, tools) * ratio * _ESTIMATE_MARGIN)

    async def embed(
        self,
        texts: Sequence[str],
        options: RequestOptions,
        *,
        model: str,
        query: bool = False,
        most_tokens: int | None = None,
    ) -> list[list[float]]:
        """Return one vector per text in the order of `texts`, by the embedding model of that name.

        With `query` the texts are search queries rather than the passages to be found. Of a longer
        text the first `most_tokens` are embedded; None: it is refused if it is too long. Raises
        ModelError.
        """
        kind = "query" if query else "passage"
        body: dict[str, Any] = {"input": list(texts), "input_type": kind, "model": model}
        if most_tokens is not None:
            body["truncate_prompt_tokens"] = most_tokens
        answer = await _with_retry(
            lambda: self.ask(EmbeddingsAnswer, "POST", "/v1/embeddings", body, options)
        )
        if len(answer.data) != len(texts):
            raise RequestRejected("not a vector for each text", 200)
        return [part.embedding for part in sorted(answer.data, key=lambda part: part.index)]

    async def card(self, name: str) -> ModelCard | None:
        """Return the card of a model or an alias, None if the server has none of that name.

        Raises ModelError.
        """
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                return await self.ask(ModelCard, "GET", f"/v1/models/{quote(name)}")
        except TimeoutError as error:
            raise TimedOut(f"no answer in {_CONNECT_TIMEOUT:g} s") from error
        except RequestRejected as error:
            if error.status == 404:
                return None
            raise

    async def send_heartbeat(self, name: str, heartbeat: Heartbeat) -> None:
        """Send the heartbeat of the tendril `name` to the server. Raises ModelError."""
        # A refusal is not left to `_trouble`, which the next success of another request clears.
        before, self._heartbeat_refused = self._heartbeat_refused, None
        try:
            path = f"/v1/tendrils/{quote(name)}"
            async with self._request("PUT", path, heartbeat.model_dump()):
                self._trouble = None if self._trouble is before else self._trouble
        except KeyRefused as error:
            self._heartbeat_refused = error
            raise

    async def ask(
        self,
        kind: type[M],
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        options: RequestOptions | None = None,
    ) -> M:
        """Return the successful response to a request. Raises ModelError."""
        async with self._request(method, path, body, options) as response:
            # Any success shows that the key is accepted, but only a completion shows that the
            # engine works.
            if isinstance(self._trouble, KeyRefused):
                self._trouble = None
            content = await read_body(response)
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            raise RequestRejected("not an answer of the server's API", 200) from error

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield its successful response. One that was not read to its end is
        closed, which stops a generation under way. Raises ModelError, after any error that only the
        operator can fix with `trouble` set."""
        content = None if body is None else _ENCODER.encode(body).encode("utf-8", "replace")
        headers = options.headers() if options else {}
        try:
            stream = self._http.stream(method, path, content=content, headers=headers)
            async with stream as response:
                if response.status_code not in (200, 204):
                    error = await read_error(response, self._origin)
                    if isinstance(error, SetupError):
                        self._trouble = error
                    raise error
                yield response
        except httpx2.ConnectTimeout as error:
            raise Unreachable("ConnectTimeout") from error
        except httpx2.TimeoutException as error:
            raise TimedOut("the server is silent") from error
        except httpx2.HTTPError as error:
            raise Unreachable(f"{type(error).__name__}: {error}") from error

    def _body(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        tools: Sequence[dict[str, Any]],
        choice: ToolChoice,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model_of(options),
            "messages": [wire(message) for message in messages],
            "temperature": options.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.temperature is None:
            body["temperature"] = self.settings.temperature
        most = self.settings.max_tokens if options.max_tokens is None else options.max_tokens
        if most:
            body["max_tokens"] = most
        return body | {"tools": list(tools), "tool_choice": choice} if tools else body


async def _with_retry(
    work: Callable[[], Awaitable[T]], tried: Sequence[ResponseAccumulator] = ()
) -> T:
    """Return the result of `work`, retrying for some seconds while the server is away or full.

    There is no retry once an attempt in `tried` has shown text, which people would see twice.
    """
    clock, pause = asyncio.get_running_loop().time, _MIN_WAIT
    deadline = clock() + _RETRY_SECONDS
    while True:
        try:
            return await work()
        except (Busy, Unreachable) as error:
            wait = max(error.retry_after, _MIN_WAIT) if isinstance(error, Busy) else pause
            has_shown_text = any(accumulator.has_shown_text for accumulator in tried)
            if has_shown_text or wait > _RETRY_SECONDS or clock() >= deadline:
                raise
        await asyncio.sleep(wait)
        pause = min(2 * pause, _MAX_WAIT)


def _characters(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> int:
    return len(_ENCODER.encode([[wire(message) for message in messages], list(tools)]))


FAST, SMART = "fast", "smart"

_CARD_SECONDS = 60.0  # seconds for which a card is cached
# The same, while the server has not tested the model's choice of tools.
_UNTESTED_CARD_SECONDS = 3.0
_MAX_CARDS = 100  # cached names; people choose them, so there is no end of them


class ModelCatalog:
    """The models that the server of `client` has, by name; the one that the client's settings name
    at the moment is the default."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._cards: dict[str, tuple[float, ModelCard | None]] = {}
        self._missed: set[str] = set()  # the unknown names that have been logged

    async def fast(self) -> str:
        """Return the name of the model for background work; "" for the configured one."""
        return FAST if self._client.settings.model != FAST and await self.card(FAST) else ""

    async def smart(self) -> str:
        """Return the name of the model worth a second try; "" if there is none, or if it is the
        configured one under another name."""
        if self._client.settings.model == SMART:
            return ""
        card, usual = await self.card(SMART), await self.card()
        same = card and usual and card.root and card.root == usual.root
        return SMART if card and not same else ""

    async def resolve(self, name: str) -> str:
        """Return the name to request for a model that somebody chose; "" for the configured one.

        The configured one also replaces a name that the server does not have, which is logged once.
        """
        if not name or name == self._client.settings.model or await self.card(name):
            self._missed.discard(name)
            return "" if name == self._client.settings.model else name
        if name not in self._cards:
            return name  # the server was never reached: the request itself will show
        if name not in self._missed:
            self._missed.add(name)
            _log.warning("models.unknown", model=name, asked_instead=self._client.settings.model)
        return ""

    async def card(self, name: str = "") -> ModelCard | None:
        """Return the card of a model (by default the configured one) from the cache or the server,
        while that is away the last one; None if there is none of that name, or no server yet."""
        name = name or self._client.settings.model
        now = asyncio.get_running_loop().time()
        asked, card = self._cards.get(name, (-_CARD_SECONDS, None))
        settled = card is None or card.chooses_tools is not None
        if now - asked < (_CARD_SECONDS if settled else _UNTESTED_CARD_SECONDS):
            return card
        try:
            card = await self._client.card(name)
        except RequestRejected:
            card = None  # a server that has no `/v1/models/NAME`
        except ModelError:
            return card  # with the old time, so that the next call asks again
        if len(self._cards) >= _MAX_CARDS:
            self._cards.clear()
        self._cards[name] = (now, card)
        return card

    async def chooses_tools(self, name: str = "") -> bool | None:
        """Return whether a model chooses well when to use a tool; None while that is unknown, as
        the server was not reached or has not tested it.

        A server that describes no models is assumed to have one that does.
        """
        card = await self.card(name)
        if card is None:
            return True if (name or self._client.settings.model) in self._cards else None
        return card.chooses_tools

    async def shown_name(self, name: str = "") -> str:
        """Return the shown name of a model, that behind an alias; "" before the server answers."""
        if card := await self.card(name):
            return card.weights or card.root or card.id
        asked = name or self._client.settings.model
        return asked if asked in self._cards else ""


EMBEDDER = "multilingual-e5-small"
"""The agent server's own embedding model, on whose vectors the classifier was trained."""

_PATIENCE = 1.0  # seconds; on a busy machine reading takes longer, but an answer must not wait


class Reader:
    """Reads questions with the embeddings of the agent server."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    async def read(self, text: str, options: RequestOptions, around: Surroundings) -> Reading:
        """Return the reading of a question, without a kind if the embedding model is away."""
        if not text.strip():
            return Reading(text)
        try:
            async with asyncio.timeout(_PATIENCE):
                (vector,) = await self._client.embed(
                    [shorten(text)], options, query=True, model=EMBEDDER, most_tokens=MOST_TOKENS
                )
        except (ModelError, TimeoutError) as error:
            _log.info("question.not_read", reason=type(error).__name__)
            return Reading(text)
        return Reading.from_vector(text, vector, around)
