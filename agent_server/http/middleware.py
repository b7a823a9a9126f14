"""ASGI middleware around every request: its id, log line, metrics, key and size limit."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from secrets import token_hex

import structlog
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_server.auth.key_cache import ApiKeyCache
from agent_server.errors import (
    ApiError,
    BodyTooLarge,
    ClientGone,
    EngineUnavailable,
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthorized,
)
from agent_server.http.error_responses import ErrorResponse, error_event
from agent_server.metering.metrics import Metrics
from agent_server.metering.request_context import RequestContext
from terrarium.loopback import host_of, is_loopback

log = structlog.get_logger()

# Visible ASCII only: the id is sent back in a header and written to the log.
_ID = re.compile(rb"[\x21-\x7e]{1,128}")
MODEL_CARD_ROUTE = "/v1/models/{name:path}"
TENDRIL_ROUTE = "/v1/tendrils/{name}"
PUBLIC_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Paths that are polled: they need no key, and their requests are logged at debug level."""


@dataclass(slots=True)
class ResponseState:
    """The progress of a response, as its ASGI messages show it."""

    status: int | None = None
    complete: bool = False
    streaming: bool = False

    def note(self, message: Message) -> None:
        """Record an ASGI message to the client."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            self.streaming = kind.startswith(b"text/event-stream")
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)

    @property
    def outcome(self) -> int:
        """The status for logs and metrics: 499 for a response that was never completed."""
        if self.status is None or not self.complete:
            return ClientGone.status
        return self.status


_ROUTINE = frozenset({(MODEL_CARD_ROUTE, NotFound.status), (TENDRIL_ROUTE, HTTPStatus.NO_CONTENT)})
"""Routes and statuses that are logged for debugging only."""

POLICY_VIOLATION = 1008
"""Close code of a refused websocket (RFC 6455, 7.4.1)."""


class AgentServer(FastAPI):
    """The FastAPI application behind our own middleware, `front`.

    Requests that `front` answers itself do not enter the framework, whose overhead would cost more
    than the answer.
    """

    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection. Websockets are refused."""
        if scope["type"] == "http":
            await self.front(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.framework(scope, receive, send)
        else:
            # No endpoint speaks websocket, and the keys are checked for HTTP requests only. Our own
            # uvicorn accepts no websockets, but the proxy of Ray Serve passes them on.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    async def framework(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection that our middleware leaves to FastAPI."""
        await super().__call__(scope, receive, send)


class AccessLogMiddleware:
    """Gives each request an id, logs and counts it, and catches what nothing else has caught."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        wanted = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = wanted if _ID.fullmatch(wanted) else token_hex(16).encode()
        state, began = ResponseState(), time.monotonic()

        async def send_tracked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            state.note(message)
            await send(message)

        # Each request has its own copy of the context, so nothing has to be unbound.
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        try:
            await self._app(scope, receive, send_tracked)
        except asyncio.CancelledError:
            # Only uvicorn cancels a request, when the grace period of a shutdown is over.
            await _farewell(state, scope, receive, send_tracked)
        except Exception:
            log.exception("request.crashed")
            if state.status is None:
                text = f"something went wrong here; the log has it as {request_id.decode()}"
                await ErrorResponse(ApiError(text))(scope, receive, send_tracked)
        finally:
            self._finish(scope, state, time.monotonic() - began)

    def _finish(self, scope: Scope, state: ResponseState, seconds: float) -> None:
        # The route's pattern: with paths as labels, clients could create series without limit.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.count_response(route, state.outcome, seconds)
        # Tendrils look models up by names that mostly do not exist, and report every ten seconds:
        # neither is news, and the reports of three tendrils would bury everything else.
        is_routine = (route, state.outcome) in _ROUTINE or route in PUBLIC_PATHS
        tell = log.debug if is_routine else log.info
        context: RequestContext | None = scope.get("request_context")
        facts = context.log_fields() if context else {}
        tell(
            "request.done",
            route=route,
            status=state.outcome,
            seconds=round(seconds, 3),
            **facts,
        )


async def _farewell(state: ResponseState, scope: Scope, receive: Receive, send: Send) -> None:
    """Tell the client that the server is stopping, by a 503 or by the last event of its stream."""
    error = EngineUnavailable("the server is stopping")
    if state.status is None:
        await ErrorResponse(error)(scope, receive, send)
    elif not state.complete:
        last = error_event(error, scope["path"]) if state.streaming else b""
        await send({"type": "http.response.body", "body": last, "more_body": False})


class AuthMiddleware:
    """Authenticates a request and creates its context, before any of the body is read."""

    def __init__(self, app: ASGIApp, api_keys: ApiKeyCache) -> None:
        self._app = app
        self._api_keys = api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        headers = dict(scope["headers"])
        # DNS rebinding: a web page can resolve its own name to 127.0.0.1, and the browser then
        # takes this server for the page's own origin. The Host header still has the page's name.
        if self._api_keys.is_open and not _is_loopback_host(headers):
            text = "without a key this server answers to loopback names such as localhost only"
            await ErrorResponse(Forbidden(text))(scope, receive, send)
            return
        if _is_guarded(scope["path"]):
            given = _secret(headers)
            owner = self._api_keys.authenticate(given)
            if owner is None:
                reason = "wrong key" if given else "a key is needed"
                hint = "send your key as Authorization: Bearer KEY"
                await ErrorResponse(Unauthorized(f"{reason}; {hint}"))(scope, receive, send)
                return
            try:
                scope["request_context"] = RequestContext.from_headers(owner, headers)
            except InvalidRequest as error:
                await ErrorResponse(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_loopback_host(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the Host header names this machine (see terrarium.loopback)."""
    return is_loopback(host_of(headers.get(b"host", b"").decode("latin-1")))


def _secret(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the API key: a bearer token, or `x-api-key`, which Anthropic's clients send."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return secret.strip()
    return headers.get(b"x-api-key", b"")


MAX_COMMAS = 50_000
"""Maximum number of commas in one body, between values or inside texts. Parsing a body with very
many values would block all other requests, so it is refused before that. A prompt with so many
commas has 100,000 tokens or more; embeddings may be requested for many long texts at once."""

EMBEDDINGS_PATH = "/v1/embeddings"


class BodySizeLimitMiddleware:
    """Refuses a body with more than `most` bytes, declared or not, or too many commas.

    The limit of commas is `MAX_COMMAS`; embeddings are exempt from it.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        # A chunked body declares no length: it is counted while it is read.
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._most:
            await ErrorResponse(too_large(self._most))(scope, receive, send)
            return
        seen, commas, has_texts = 0, 0, scope["path"] == EMBEDDINGS_PATH

        async def count_bytes() -> Message:
            nonlocal seen, commas
            message = await receive()
            part = message.get("body", b"")
            seen += len(part)
            commas += 0 if has_texts else part.count(b",")
            if commas > MAX_COMMAS:
                text = f"the request body has too many values: at most {MAX_COMMAS} commas"
                raise HTTPException(BodyTooLarge.status, text)
            if seen > self._most:
                # FastAPI turns any other exception from reading a body into a 400.
                raise HTTPException(BodyTooLarge.status, too_large(self._most).message)
            return message

        await self._app(scope, count_bytes, send)


def too_large(most: int) -> BodyTooLarge:
    """Return the error for a body of more than `most` bytes."""
    return BodyTooLarge(f"the request body is longer than {most} bytes ([server] max_body_bytes)")


def _is_guarded(path: str) -> bool:
    """Return whether a path needs a key: all but those in `PUBLIC_PATHS`."""
    return path not in PUBLIC_PATHS
