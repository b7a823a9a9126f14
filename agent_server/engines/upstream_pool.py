"""The base URLs of one engine: health, failover, requests, and the responses to them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from pydantic_core import from_json

from agent_server.engines.cache_salt import CACHE_SALT
from agent_server.engines.errors import to_api_error
from agent_server.errors import (
    ApiError,
    EngineMisconfigured,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
    Unsupported,
)
from terrarium.http.client import (
    ConnectFailed,
    ConnectionBroken,
    ConnectionPool,
    EventData,
    EventTooLong,
    HttpConnection,
)

log = structlog.get_logger()

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

BREAK_AFTER = 3
"""Failures in a row after which an upstream is asked no more until a health check passes."""


@dataclass(slots=True, eq=False)
class Upstream:
    """A circuit breaker: `down` while requests do not go there.

    `in_flight` counts them, `given_up` those that were left before the first byte of an answer.
    `model` is the first one that it lists, and `takes_salt` is True of vLLM, once that was asked;
    `counts_chats` is False for llama.cpp, which counts texts only.
    """

    url: str
    connection_pool: ConnectionPool
    failures: int = 0
    down: bool = False
    in_flight: int = 0
    given_up: int = 0
    model: str | None = None
    takes_salt: bool = False
    counts_chats: bool = True

    def record_success(self) -> None:
        """Close the circuit after an answer."""
        if self.down:
            log.info("upstream.up", url=self.url)
        self.failures, self.down = 0, False

    def record_failure(self, reason: str, *, gone: bool = False) -> None:
        """Count a failure; `gone` when it refuses connections, which opens the circuit at once."""
        self.failures += 1
        if not self.down and (gone or self.failures >= BREAK_AFTER):
            self.down = True
            log.warning("upstream.down", url=self.url, reason=reason)

    def rank(self, session: str) -> bytes:
        """Return the rank of this upstream for a session, which goes to the one that ranks first.

        Rendezvous hashing: when an upstream goes or comes, the others keep their sessions.
        """
        return hashlib.blake2b(f"{session}\0{self.url}".encode(), digest_size=8).digest()


LONGEST = 64 * 1024 * 1024
"""Bytes of an answer that comes whole."""

FAREWELL = 0.05
"""Seconds in which a stream must end after its last event for its connection to be kept."""


class UpstreamResponse:
    """The status, the headers and the body of one answer.

    The upstream has it among those it is `in_flight` until it is closed. `timeout` is how many
    seconds the engine may be silent.
    """

    def __init__(self, connection: HttpConnection, upstream: Upstream, timeout: float) -> None:
        self._connection: HttpConnection | None = connection
        self._timeout = timeout
        self.status: int = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self.has_begun = connection.has_body
        self.upstream = upstream

    async def read(self) -> bytes:
        """Return the next bytes of the body; none at its end. Raises ApiError."""
        assert self._connection is not None
        try:
            return await self._connection.read()
        except TimeoutError as error:
            self.upstream.record_failure("silent")
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except ConnectionBroken as error:
            self.upstream.record_failure(str(error))
            raise EngineUnavailable("the engine went away in the middle of the answer") from error

    async def read_all(self) -> bytes:
        """Return the rest of the body, and close. Raises EngineTimeout, EngineUnavailable."""
        body = bytearray()
        try:
            while piece := await self.read():
                body += piece
                if len(body) > LONGEST:
                    raise EngineUnavailable(f"the engine's answer has more than {LONGEST} bytes")
        finally:
            self.close()
        return bytes(body)

    def finish(self) -> None:
        """Close after the last event of a stream; its connection is kept if it ends by itself."""
        self.close(FAREWELL)

    def close(self, grace: float = 0) -> None:
        """Release the connection; an answer that has not ended is aborted, and its generation."""
        if self._connection is not None:
            self._connection.release(grace)
            self._connection = None
            self.upstream.in_flight -= 1


CHECK_DOWN, CHECK_ALL = 1.0, 10.0
"""Seconds between health checks of upstreams that are down, and of all when there are several."""

CHECK_PATIENCE = 5.0
"""Seconds that a health check may take."""

HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}


MODELS = "/v1/models"
"""Where every kind of upstream lists its models; our health check, as it takes the key too."""

VLLM = "vllm"
"""The owner that vLLM names in its model cards."""

UNNAMED = "default"
"""What an upstream that lists no models is asked for."""

FAULTS = (EngineUnavailable, RateLimited)
"""The errors of an upstream after which the next one is asked."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request to whichever upstream answers; `session` keeps a conversation on one.

    With `names_model`, a `body` whose `model` is None gets the one of the upstream that is asked.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    session: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    names_model: bool = False


class UpstreamPool:
    """Sends each request to the first URL that begins an answer.

    A conversation goes to the same URL each time, and with it to its cached prompt, unless that one
    runs its share of the `places` already. Other requests go to the URL that runs fewest.

    A connection that is refused or breaks, a status of 429 or 5xx, and an empty answer let the
    next URL try, always before the first byte of an answer and never after. A URL that keeps
    failing is left alone until its health check passes.
    """

    def __init__(
        self,
        urls: Sequence[str],
        headers: Mapping[str, str],
        *,
        timeout: float,
        keep_alive: bool = True,
        places: int | None = None,
    ) -> None:
        own = {**HEADERS, **headers}
        self._pool = tuple(
            Upstream(url, ConnectionPool(url, own, patience=timeout, keep_alive=keep_alive))
            for url in urls
        )
        self._timeout = timeout
        self._share = math.inf if places is None else max(1, places // len(self._pool))
        self._is_running = False
        self._turn = itertools.count()

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return any(each.in_flight for each in self._pool)

    @property
    def takes_salt(self) -> bool:
        """True if all upstreams are known to keep the prompts of each `cache_salt` apart."""
        return all(each.takes_salt for each in self._pool)

    @property
    def given_up(self) -> int:
        """The number of requests that were left before the first byte of an answer."""
        return sum(each.given_up for each in self._pool)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Check the upstreams' health, and close the connections in the end."""
        watching = asyncio.create_task(self._watch())
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            watching.cancel()
            await asyncio.wait({watching})
            for each in self._pool:
                await each.connection_pool.close()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Begin an answer; close it in the end. Raises ApiError, the last upstream's own."""

        async def begin(upstream: Upstream) -> UpstreamResponse:
            return await self.ask(upstream, request)

        return await self.first(begin, request.session)

    async def first(
        self,
        ask: Callable[[Upstream], Awaitable[T]],
        session: str | None = None,
        skipped: tuple[type[ApiError], ...] = FAULTS,
    ) -> T:
        """Return what the first upstream answers that raises none of the errors that are `skipped`.

        Raises ApiError, the last upstream's own.
        """
        problem: ApiError | None = None
        for upstream in self._order(session):
            try:
                return await ask(upstream)
            except skipped as error:
                problem = error
        raise problem or EngineUnavailable("no engine can be reached")

    async def cards(self, upstream: Upstream) -> list[dict[str, Any]]:
        """Return what an upstream lists of its models, each with an `id`. Raises ApiError."""
        try:
            response = await self.ask(upstream, UpstreamRequest("GET", MODELS))
            found = _cards(await response.read_all())
        except Unsupported:
            return [{"id": UNNAMED}]
        if not found:
            raise EngineUnavailable("the engine lists no model")
        upstream.takes_salt = _are_of_vllm(found)
        return found

    async def healthy(self) -> bool:
        """Return whether any upstream passes its health check now."""
        async with asyncio.TaskGroup() as tasks:
            checks = [tasks.create_task(self._check(each)) for each in self._pool]
        return any(check.result() for check in checks)

    async def ask(self, upstream: Upstream, request: UpstreamRequest) -> UpstreamResponse:
        """Begin the answer of one upstream; close it in the end. Raises ApiError."""
        content = None if request.body is None else encode(await self._body(upstream, request))
        upstream.in_flight += 1
        try:
            connection = await self._first_bytes(upstream, request, content)
        except BaseException:
            upstream.in_flight -= 1
            upstream.given_up += request.method == "POST"
            raise
        answer = UpstreamResponse(connection, upstream, self._timeout)
        try:
            await self._require_success(answer, request)
        except EngineMisconfigured:
            upstream.model = None  # it may have another one by now
            raise
        return answer

    async def _body(self, upstream: Upstream, request: UpstreamRequest) -> Mapping[str, Any]:
        body = dict(request.body or {})
        if request.names_model and not body.get("model"):
            if upstream.model is None:
                upstream.model = (await self.cards(upstream))[0]["id"]
            body["model"] = upstream.model
        if not upstream.takes_salt:
            body.pop(CACHE_SALT, None)
        return body

    async def _first_bytes(
        self, upstream: Upstream, request: UpstreamRequest, content: bytes | None
    ) -> HttpConnection:
        """Return the connection with the first bytes of the answer's body. Raises ApiError."""
        if not self._is_running:
            raise EngineUnavailable("the engine is not started")
        try:
            return await upstream.connection_pool.ask(
                request.method, request.path, content, request.headers
            )
        except ConnectFailed as error:
            upstream.record_failure(str(error), gone=True)
            raise EngineUnavailable("no engine can be reached") from error
        except TimeoutError as error:
            upstream.record_failure("silent")
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except ConnectionBroken as error:
            upstream.record_failure(str(error))
            raise EngineUnavailable("the engine went away before it answered") from error

    async def _require_success(self, answer: UpstreamResponse, request: UpstreamRequest) -> None:
        if answer.status == 200 and answer.has_begun:
            answer.upstream.record_success()
            return
        body = await answer.read_all()
        if answer.status == 200:
            answer.upstream.record_failure("empty")
            raise EngineUnavailable("the engine gave an empty answer")
        if answer.status >= 500 and answer.status != 501:
            answer.upstream.record_failure(str(answer.status))
        raise to_api_error(answer.status, body, answer.headers, request.path)

    def _order(self, session: str | None) -> Sequence[Upstream]:
        up = [each for each in self._pool if not each.down]
        if len(up) < 2:
            return up
        if session is not None:
            return sorted(up, key=lambda each: (each.in_flight >= self._share, each.rank(session)))
        first = next(self._turn) % len(up)
        return sorted(up[first:] + up[:first], key=lambda each: each.in_flight)

    async def _watch(self) -> None:
        every = round(CHECK_ALL / CHECK_DOWN)
        for turn in itertools.count(1):
            await asyncio.sleep(CHECK_DOWN)
            whole = len(self._pool) > 1 and turn % every == 0
            async with asyncio.TaskGroup() as tasks:
                for each in self._pool:
                    if each.down or whole:
                        tasks.create_task(self._check(each))

    async def _check(self, upstream: Upstream) -> bool:
        """Check the health of an upstream. That it lacks the path is an answer too."""
        try:
            async with asyncio.timeout(CHECK_PATIENCE):
                answer = await self.ask(upstream, UpstreamRequest("GET", MODELS))
                listed = await answer.read_all()
                with suppress(EngineUnavailable):  # that it answers is enough
                    upstream.takes_salt = _are_of_vllm(_cards(listed))
        except TimeoutError:
            upstream.record_failure("its health check is silent")
            return False
        except ApiError as error:
            if not isinstance(error, Unsupported):
                return False
        upstream.record_success()
        return True


def _cards(listed: bytes) -> list[dict[str, Any]]:
    """Return the model cards of a list of models. Raises EngineUnavailable for what is not JSON."""
    parsed = parse_json(listed)
    cards = parsed.get("data") if isinstance(parsed, dict) else None
    return [
        card
        for card in (cards if isinstance(cards, list) else ())
        if isinstance(card, dict) and isinstance(card.get("id"), str)
    ]


def _are_of_vllm(cards: Sequence[Mapping[str, Any]]) -> bool:
    return any(card.get("owned_by") == VLLM for card in cards)


class UpstreamEngine:
    """The common part of engines behind base URLs; `model` is asked when a request names none."""

    def __init__(
        self,
        urls: Sequence[str],
        headers: Mapping[str, str],
        *,
        model: str | None,
        timeout: float,
        keep_alive: bool = True,
        places: int | None = None,
    ) -> None:
        self._upstream_pool = UpstreamPool(
            urls, headers, timeout=timeout, keep_alive=keep_alive, places=places
        )
        self._model = model

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return self._upstream_pool.is_busy

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Hold the connections open."""
        async with self._upstream_pool.lifespan():
            yield

    async def ready(self) -> bool:
        """Return whether an upstream lists its models: it is up and takes our key."""
        return await self._upstream_pool.healthy()

    async def _json(
        self, request: UpstreamRequest, upstream: Upstream | None = None
    ) -> dict[str, Any]:
        """Return the JSON object that one upstream answers, or any. Raises ApiError."""
        pool = self._upstream_pool
        response = await (pool.ask(upstream, request) if upstream else pool.send(request))
        answer = parse_json(await response.read_all())
        if not isinstance(answer, dict):
            raise EngineUnavailable(
                f"the engine's {request.path} did not answer with a JSON object"
            )
        return answer


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a request body as JSON. Raises InvalidRequest for what JSON cannot carry."""
    try:
        return _ENCODER.encode(body).encode()
    except ValueError:
        # Infinity, NaN, or half of a surrogate pair.
        text = "the request holds a number or text that JSON cannot carry"
        raise InvalidRequest(text) from None


def parse_json(data: bytes) -> Any:
    """Parse what an engine sends. Raises EngineUnavailable for what is not JSON."""
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        # Half of a surrogate pair as an escape, of an engine that cuts a character in two: the
        # strict and faster parser refuses it.
        return json.loads(data)
    except ValueError:
        raise EngineUnavailable("the engine sent something that is not JSON") from None


class SseStream:
    """The data of the events of a streamed answer."""

    def __init__(self, answer: UpstreamResponse) -> None:
        self._answer = answer
        self._data = EventData()
        self._ended = False

    async def next_batch(self) -> list[bytes]:
        """Return the events that came together; none at the end. Raises ApiError."""
        found: list[bytes] = []
        try:
            while not found and not self._ended:
                piece = await self._answer.read()
                self._ended = not piece
                found = self._data.feed(piece or b"\n")  # the last line may be left open
        except EventTooLong as error:
            raise EngineUnavailable("the engine sent an event without an end") from error
        return found
