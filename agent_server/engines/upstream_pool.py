"""The upstreams of one engine: load balancing, failover, health checks, and their responses."""

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
from urllib.parse import urlsplit

import structlog
from pydantic_core import from_json

from agent_server.engine_protocol import TRACEPARENT, Engine, UpstreamState
from agent_server.engines.errors import DETAIL_PATHS, to_api_error
from agent_server.engines.model_descriptions import objects_in
from agent_server.engines.prompt_guard import CACHE_SALT
from agent_server.errors import (
    ApiError,
    EngineMisconfigured,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
    Unsupported,
)
from terrarium.cancellation import run_beside
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

MAX_FAILURES = 3
"""Consecutive failures that open the circuit, until a health check passes; also the consecutive
slow answers for which an upstream is ejected."""

MIN_SLOW, SLOW_FACTOR = 2.0, 5.0
"""An answer is slow if its first byte takes longer than `MIN_SLOW` seconds, and `SLOW_FACTOR` times
as long as it usually does at the fastest of the other upstreams."""

EJECTION = 30.0
"""Seconds for which an upstream that is slow or began no answer in time is asked last."""


@dataclass(slots=True, eq=False)
class Upstream:
    """A base URL with its circuit breaker: while it is `down`, it gets no requests; until
    `ejected_until`, a time of the event loop, only those that the others cannot take.

    `timeout` is its longest silence in seconds. `in_flight` counts the running requests,
    `aborted_posts` those that failed or were left before the first byte of an answer; `waiting` are
    the time limits of those without a first byte, and `delay` is how many seconds that usually
    takes, None if unknown. `failed_total` counts failures since the start. `model` is
    the first one it lists, once known; `takes_salt` is True once it is known to be vLLM;
    `counts_chats` becomes False for llama.cpp, which tokenizes only texts.
    """

    url: str
    connection_pool: ConnectionPool
    timeout: float
    failures: int = 0
    down: bool = False
    in_flight: int = 0
    aborted_posts: int = 0
    failed_total: int = 0
    slow: int = 0
    delay: float | None = None
    ejected_until: float = 0.0
    waiting: set[asyncio.Timeout] = field(default_factory=set)
    model: str | None = None
    takes_salt: bool = False
    counts_chats: bool = True

    @property
    def name(self) -> str:
        """Its URL without a scheme, and without what may be secret in it."""
        parts = urlsplit(self.url)
        return parts.netloc.rpartition("@")[2] + parts.path

    def record_success(self) -> None:
        """Close the circuit, and forget earlier failures."""
        if self.down:
            log.info("upstream.up", url=self.url)
        self.failures, self.down = 0, False

    def record_failure(self, reason: str, *, gone: bool = False) -> None:
        """Count a failure; `gone` (connections are refused) opens the circuit at once."""
        self.failures += 1
        self.failed_total += 1
        if not self.down and (gone or self.failures >= MAX_FAILURES):
            self.down = True
            log.warning("upstream.down", url=self.url, reason=reason)

    def record_delay(self, seconds: float, usual: float) -> None:
        """Average the seconds until a first byte, where `usual` are those of the fastest other
        upstream; eject the upstream after several slow answers in a row."""
        self.delay = seconds if self.delay is None else self.delay + 0.2 * (seconds - self.delay)
        self.slow = self.slow + 1 if seconds > max(MIN_SLOW, SLOW_FACTOR * usual) else 0
        if self.slow >= MAX_FAILURES:
            self.eject("slower than the others")

    def eject(self, reason: str) -> None:
        """Have the upstream come after the others for a while."""
        log.warning("upstream.ejected", url=self.url, reason=reason, seconds=EJECTION)
        self.ejected_until = asyncio.get_running_loop().time() + EJECTION
        self.slow, self.delay = 0, None

    def give_up_waiting(self) -> None:
        """End the requests that wait for their first byte, so that others can take them."""
        now = asyncio.get_running_loop().time()
        for each in self.waiting:
            if not each.expired():
                each.reschedule(now)

    def record_error(self, error: Exception, when: str) -> ApiError:
        """Count a failure of the connection, and return the error of the API for it."""
        if isinstance(error, TimeoutError):
            self.record_failure("silent")
            return EngineTimeout(f"the engine was silent for {self.timeout:g} s")
        is_refused = isinstance(error, ConnectFailed)
        self.record_failure(str(error), gone=is_refused)
        text = "no engine can be reached" if is_refused else f"the engine went away {when}"
        return EngineUnavailable(text)


MAX_BODY_BYTES = 64 * 1024 * 1024
"""Maximum size in bytes of a response that is read as a whole."""

LINGER = 0.05
"""Seconds that a stream may take to end after its last event, for its connection to be reused."""


class UpstreamResponse:
    """The body of one response. Until it is closed it counts as `in_flight` at its upstream."""

    def __init__(self, connection: HttpConnection, upstream: Upstream) -> None:
        self._connection: HttpConnection | None = connection
        self._peeked = b""
        self._data = EventData()
        self._ended = False
        self.upstream = upstream

    async def peek(self) -> bytes:
        """Return the first bytes of the body but white space, without consuming them. Raises
        ApiError."""
        while not self._peeked and (piece := await self.read()):
            self._peeked = piece.lstrip()
        return self._peeked

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at its end. Raises ApiError."""
        if self._peeked:
            piece, self._peeked = self._peeked, b""
            return piece
        assert self._connection is not None
        try:
            return await self._connection.read()
        except (TimeoutError, ConnectionBroken) as error:
            raise self.upstream.record_error(error, "in the middle of the answer") from error

    async def next_batch(self) -> list[bytes]:
        """Return the data of the server-sent events that arrived together, none at the end. Raises
        ApiError."""
        found: list[bytes] = []
        try:
            while not found and not self._ended:
                piece = await self.read()
                self._ended = not piece
                found = self._data.feed(piece or b"\n")  # the last line may lack its newline
        except EventTooLong as error:
            raise EngineUnavailable("the engine sent an event without an end") from error
        return found

    async def read_all(self) -> bytes:
        """Return the rest of the body, and close. Raises EngineTimeout, EngineUnavailable."""
        body = bytearray()
        try:
            while piece := await self.read():
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise EngineUnavailable(
                        f"the engine's answer has more than {MAX_BODY_BYTES} bytes"
                    )
        finally:
            self.close()
        return bytes(body)

    def close(self, grace: float = 0) -> None:
        """Release the connection. An answer that has not ended within `grace` seconds is aborted,
        with its generation."""
        if self._connection is not None:
            self._connection.release(grace)
            self._connection = None
            self.upstream.in_flight -= 1


CHECK_INTERVAL = 1.0
"""Seconds between health checks of an upstream that is down, and of each when there are several."""

CHECK_TIMEOUT = 3.0
"""Seconds that a health check may take."""

HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}

MODELS_PATH = "/v1/models"
"""The path of the list of models, which all kinds of upstreams have. It is the health check too,
because it also requires the key."""

VLLM = "vllm"
"""The `owned_by` of model cards from vLLM."""

UNNAMED_MODEL = "default"
"""The model to ask an upstream for that has no list of models."""

FAILOVER_ERRORS = (EngineUnavailable, RateLimited)
"""Errors after which the next upstream is tried. EngineMisconfigured is one of them, being an
EngineUnavailable; EngineTimeout is not."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request for any of the upstreams; `session` keeps a conversation on one.

    With `names_model`, a `model` that is missing in `body` or None is that of the upstream.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    session: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    names_model: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """The base URLs (without `/v1`) of one engine, and how they are used.

    `model` is the default where a request names none, `timeout` the longest silence in seconds.
    `first_byte` is how many seconds an upstream has to begin a streamed answer while there are
    others to ask. Without `keep_alive` no connection is used twice. `slots` (None: unknown) are
    those of all upstreams together.
    """

    urls: Sequence[str]
    key: str | None = None
    model: str | None = None
    timeout: float = 300
    first_byte: float = 60
    keep_alive: bool = True
    slots: int | None = None


class UpstreamEngine(Engine):
    """The base of engines behind URLs: load balancing and failover over their upstreams.

    A session always goes to the same upstream, where its prompt is cached, unless that one is
    running its share of the `slots` already. Other requests go to the upstream that runs
    the fewest.

    The next upstream is tried after a connection that is refused or breaks, a status of 429 or 5xx,
    one that shows a wrong configuration (401, 403, 404, 405), an empty answer, and when the first
    byte of an answer takes too long or the health checks fail meanwhile; never after that byte.
    Timeouts of the last upstream, and those that one reports (408, 504), are final. An upstream
    that keeps failing is left out until its health check passes; a slow one is asked last for a
    while.
    """

    def __init__(self, config: UpstreamConfig, headers: Mapping[str, str]) -> None:
        own, timeout, slots = {**HEADERS, **headers}, config.timeout, config.slots
        self._upstreams = tuple(
            Upstream(
                url,
                ConnectionPool(url, own, patience=timeout, keep_alive=config.keep_alive),
                timeout,
            )
            for url in config.urls
        )
        self._model = config.model
        self._first_byte = config.first_byte
        self._slots_each = math.inf if slots is None else max(1, slots // len(self._upstreams))
        self._is_running = False
        self._turn = itertools.count()

    @property
    def upstreams(self) -> Sequence[UpstreamState]:
        """The servers that it sends requests to."""
        return [
            UpstreamState(each.name, not each.down, each.in_flight, each.failed_total)
            for each in self._upstreams
        ]

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return any(each.in_flight for each in self._upstreams)

    @property
    def aborted_posts(self) -> int:
        """The number of requests that failed or were left before the first byte of an answer."""
        return sum(each.aborted_posts for each in self._upstreams)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run the health checks; close all connections at the end."""

        async def watch(upstream: Upstream) -> None:
            while True:
                await asyncio.sleep(CHECK_INTERVAL)
                if upstream.down or len(self._upstreams) > 1:
                    await self._check(upstream)

        try:
            async with run_beside(*map(watch, self._upstreams)):
                self._is_running = True
                yield
        finally:
            self._is_running = False
            for each in self._upstreams:
                await each.connection_pool.close()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request to the first upstream that begins an answer; the caller closes it. Raises
        the ApiError of the last upstream."""
        # A whole answer has no byte before its end.
        streams = request.body is not None and request.body.get("stream") is True
        limit = self._first_byte if streams else None

        async def ask(upstream: Upstream) -> UpstreamResponse:
            began = asyncio.get_running_loop().time()
            response = await self.ask(upstream, request)
            if streams:
                others = (each.delay for each in self._upstreams if each is not upstream)
                usual = min((each for each in others if each is not None), default=math.inf)
                upstream.record_delay(asyncio.get_running_loop().time() - began, usual)
            return response

        return await self.try_each(ask, request.session, limit=limit)

    async def try_each(
        self,
        ask: Callable[[Upstream], Awaitable[T]],
        session: str | None = None,
        skipped: tuple[type[ApiError], ...] = FAILOVER_ERRORS,
        limit: float | None = None,
    ) -> T:
        """Call `ask` with one upstream after another; return the first result.

        Errors in `skipped` lead to the next upstream, and so does one that takes longer than
        `limit` seconds, unless it is the last, or fails its health checks meanwhile. Raises the
        ApiError of the last one, or EngineUnavailable while all are down.
        """
        problem: ApiError | None = None
        order = self._order(session)
        for upstream in order:
            try:
                async with asyncio.timeout(None if upstream is order[-1] else limit) as waiting:
                    upstream.waiting.add(waiting)
                    return await ask(upstream)
            except TimeoutError:
                if not upstream.down:
                    upstream.record_failure("began no answer")
                    upstream.eject("began no answer")
                problem = EngineUnavailable("the engine began no answer in time")
            except skipped as error:
                problem = error
            finally:
                upstream.waiting.discard(waiting)
        raise problem or EngineUnavailable("no engine can be reached")

    async def cards(self, upstream: Upstream) -> list[dict[str, Any]]:
        """Return the model cards that an upstream lists, each with an `id`. Raises ApiError."""
        try:
            response = await self.ask(upstream, UpstreamRequest("GET", MODELS_PATH))
            found = _cards(await response.read_all())
        except Unsupported:
            return [{"id": UNNAMED_MODEL}]
        if not found:
            raise EngineUnavailable("the engine lists no model")
        upstream.takes_salt = _are_of_vllm(found)
        return found

    async def ready(self) -> bool:
        """Return whether an upstream lists its models: it is up and takes our key."""
        async with asyncio.TaskGroup() as tasks:
            checks = [tasks.create_task(self._check(each)) for each in self._upstreams]
        return any(check.result() for check in checks)

    async def ask(self, upstream: Upstream, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request to one upstream; the caller closes the response. Raises ApiError."""
        content, own = None, request.headers
        if request.body is not None:
            body = dict(request.body)
            if trace := body.pop(TRACEPARENT, None):
                own = {**own, TRACEPARENT: trace}
            if request.names_model and not body.get("model"):
                if upstream.model is None:
                    upstream.model = (await self.cards(upstream))[0]["id"]
                body["model"] = upstream.model
            if not upstream.takes_salt:
                body.pop(CACHE_SALT, None)
            try:
                content = _ENCODER.encode(body).encode()
            except ValueError:  # Infinity, NaN, or a lone surrogate, which UTF-8 cannot encode
                text = "the request holds a number or text that JSON cannot carry"
                raise InvalidRequest(text) from None
        if not self._is_running:
            raise EngineUnavailable("the engine is not started")
        upstream.in_flight += 1
        try:
            connection = await upstream.connection_pool.request(
                request.method, request.path, content, own
            )
        except BaseException as error:
            upstream.in_flight -= 1
            # For the embedded engine's watchdog: a request that was given up may still be at work.
            upstream.aborted_posts += request.method == "POST"
            if isinstance(error, TimeoutError | ConnectFailed | ConnectionBroken):
                raise upstream.record_error(error, "before it answered") from error
            raise
        # From here on `in_flight` is decremented by closing the response.
        answer = UpstreamResponse(connection, upstream)
        status, headers = connection.status, connection.headers
        if status == 200 and connection.has_body:
            upstream.record_success()
            return answer
        body_of_error = await answer.read_all()
        if status == 200:
            upstream.record_failure("empty")
            raise EngineUnavailable("the engine gave an empty answer")
        problem = to_api_error(status, body_of_error, headers, request.path)
        # A server that answers 4xx is healthy, whatever its status for a request that is at fault;
        # 501 is a missing feature, and so is anything at a path that only some servers have.
        is_fault = status >= 500 and problem.status >= 500 and status != 501
        if is_fault and request.path not in DETAIL_PATHS:
            upstream.record_failure(str(status))
        if isinstance(problem, EngineMisconfigured):
            upstream.model = None  # it may have another one by now
        raise problem

    async def _ask_json(
        self, request: UpstreamRequest, upstream: Upstream | None = None
    ) -> dict[str, Any]:
        """Return the JSON object that `upstream` answers, or any if it is None. Raises ApiError."""
        response = await (self.ask(upstream, request) if upstream else self.send(request))
        answer = parse_json(await response.read_all())
        if not isinstance(answer, dict):
            raise EngineUnavailable(
                f"the engine's {request.path} did not answer with a JSON object"
            )
        return answer

    def _order(self, session: str | None) -> Sequence[Upstream]:
        up = [each for each in self._upstreams if not each.down]
        if len(up) < 2:
            return up
        now = asyncio.get_running_loop().time()
        if session is not None:
            # Rendezvous hashing: when an upstream joins or leaves, the others keep their sessions.
            # One that is full comes after those that have room.
            def rank(upstream: Upstream) -> tuple[bool, bool, bytes]:
                named = f"{session}\0{upstream.url}".encode()
                digest = hashlib.blake2b(named, digest_size=8).digest()
                is_ejected = upstream.ejected_until > now
                return is_ejected, upstream.in_flight >= self._slots_each, digest

            return sorted(up, key=rank)
        # The sort is stable: with equal load the upstreams take turns.
        first = next(self._turn) % len(up)
        in_turn = up[first:] + up[:first]
        return sorted(in_turn, key=lambda each: (each.ejected_until > now, each.in_flight))

    async def _check(self, upstream: Upstream) -> bool:
        """Check the health of an upstream, and update its circuit.

        An upstream without a list of models is healthy too, as it has answered.
        """
        try:
            async with asyncio.timeout(CHECK_TIMEOUT):
                answer = await self.ask(upstream, UpstreamRequest("GET", MODELS_PATH))
                listed = await answer.read_all()
                with suppress(EngineUnavailable):  # that it answers is enough
                    upstream.takes_salt = _are_of_vllm(_cards(listed))
        except TimeoutError:
            upstream.record_failure("its health check is silent")
            if upstream.down and len(self._upstreams) > 1:
                upstream.give_up_waiting()
            return False
        except ApiError as error:
            if not isinstance(error, Unsupported):
                return False
        except Exception as error:  # noqa: BLE001 -- nothing that it sends may end the server
            log.warning("upstream.check_failed", url=upstream.url, reason=type(error).__name__)
            return False
        upstream.record_success()
        return True


def _cards(listed: bytes) -> list[dict[str, Any]]:
    """Parse the model cards of a list of models. Raises EngineUnavailable if it is not JSON."""
    cards = objects_in(parse_json(listed), "data")
    return [card for card in cards if isinstance(card.get("id"), str)]


def _are_of_vllm(cards: Sequence[Mapping[str, Any]]) -> bool:
    return any(card.get("owned_by") == VLLM for card in cards)


def parse_json(data: bytes) -> Any:
    """Parse JSON from an engine. Raises EngineUnavailable if it is malformed."""
    try:
        return from_json(data)
    except ValueError:
        pass
    try:
        # An escaped lone surrogate, from an engine that splits a character between two chunks: the
        # strict, faster parser rejects it.
        return json.loads(data)
    except ValueError:
        raise EngineUnavailable("the engine sent something that is not JSON") from None
