"""What happens around every request: its id, its log line, its metrics, its key."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_server.auth.key_cache import KeyRing
from agent_server.errors import (
    ApiError,
    BodyTooLarge,
    ClientGone,
    EngineUnavailable,
    Forbidden,
    NotFound,
    Unauthorized,
)
from agent_server.http.error_responses import ErrorResponse, error_event
from agent_server.metering.metrics import Metrics
from agent_server.metering.request_context import Visit, visiting
from storage.usage.api_keys import Key
from terrarium.loopback import host_of, is_loopback

log = structlog.get_logger()

_ID = re.compile(rb"[\x21-\x7e]{1,128}")
CARD = "/v1/models/{name:path}"
QUIET = frozenset({"/health", "/ready", "/metrics"})
"""Routes that are polled: their requests are logged at debug level."""


def error_response(error: ApiError) -> ErrorResponse:
    """The HTTP answer for `error`."""
    return ErrorResponse(error)


@dataclass(slots=True)
class Progress:
    """How far an answer has come; 499 when it never came to its end."""

    status: int | None = None
    complete: bool = False
    streaming: bool = False

    def note(self, message: Message) -> None:
        """Take note of an ASGI message to the client."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            self.streaming = kind.startswith(b"text/event-stream")
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)

    @property
    def outcome(self) -> int:
        """The status for logs and metrics."""
        if self.status is None or not self.complete:
            return ClientGone.status
        return self.status


class RequestContext:
    """Gives each request an id, and is the last place where an error can be caught."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        wanted = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = wanted if _ID.fullmatch(wanted) else token_hex(16).encode()
        progress, began = Progress(), time.monotonic()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            progress.note(message)
            await send(message)

        # Each request has a context of its own, which ends with it.
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        try:
            await self._app(scope, receive, tell)
        except asyncio.CancelledError:
            # Only uvicorn cancels a request: the server stops, and its grace is over.
            await _farewell(progress, scope, receive, tell)
        except Exception:
            log.exception("request.crashed")
            if progress.status is None:
                text = f"something went wrong here; the log has it as {request_id.decode()}"
                await error_response(ApiError(text))(scope, receive, tell)
        finally:
            self._done(scope, progress, time.monotonic() - began)

    def _done(self, scope: Scope, progress: Progress, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.answered(route, progress.outcome, seconds)
        # Tendrils look whether there is a model of some name, and mostly there is none.
        looked = route == CARD and progress.outcome == NotFound.status
        tell = log.debug if route in QUIET or looked else log.info
        who = visiting.get()
        facts = who.facts() if who else {}
        tell(
            "request.done",
            route=route,
            status=progress.outcome,
            seconds=round(seconds, 3),
            **facts,
        )


async def _farewell(progress: Progress, scope: Scope, receive: Receive, send: Send) -> None:
    """Tell a client whose answer is cut short, in the way that is still open."""
    error = EngineUnavailable("the server is stopping")
    if progress.status is None:
        await error_response(error)(scope, receive, send)
    elif not progress.complete:
        last = error_event(error, scope["path"]) if progress.streaming else b""
        await send({"type": "http.response.body", "body": last, "more_body": False})


class BearerKey:
    """Finds out who asks, before a byte of the body is read; nobody gets in with a wrong key."""

    def __init__(self, app: ASGIApp, ring: KeyRing) -> None:
        self._app = app
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        headers = dict(scope["headers"])
        if self._ring.is_open and not _is_ours(headers):
            text = "without a key this server answers to loopback names such as localhost only"
            await error_response(Forbidden(text))(scope, receive, send)
            return
        if _is_guarded(scope["path"]):
            given = _secret(headers)
            owner = self._ring.owner(given)
            if owner is None:
                reason = "wrong key" if given else "a key is needed"
                hint = "send your key as Authorization: Bearer KEY"
                await error_response(Unauthorized(f"{reason}; {hint}"))(scope, receive, send)
                return
            visiting.set(_visit(owner, headers))
        await self._app(scope, receive, send)


def _is_ours(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the Host header means this machine (see terrarium.loopback)."""
    return is_loopback(host_of(headers.get(b"host", b"").decode("latin-1")))


def _secret(headers: Mapping[bytes, bytes]) -> bytes:
    """The bearer key; Anthropic's clients send it as `x-api-key`."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return secret.strip()
    return headers.get(b"x-api-key", b"")


def _visit(owner: Key, headers: Mapping[bytes, bytes]) -> Visit:
    """The key's priority is the highest; a request can only ask for less."""
    background = b"background" in (owner.priority.encode(), headers.get(b"x-priority"))
    size = headers.get(b"content-length", b"")
    return Visit(owner, background, int(size) if size.isdigit() and len(size) < 16 else 0)


class BodyLimit:
    """Refuses a request body that is longer than `most` bytes, declared or not."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._most:
            await error_response(too_large(self._most))(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                # The one kind of exception that reading a body lets pass.
                raise HTTPException(BodyTooLarge.status, too_large(self._most).message)
            return message

        await self._app(scope, counted, send)


def too_large(most: int) -> BodyTooLarge:
    """The error for a body over `most` bytes."""
    return BodyTooLarge(f"the request body is longer than {most} bytes ([server] max_body_bytes)")


def _is_guarded(path: str) -> bool:
    return path.startswith("/v1/") or path in ("/v1", "/tokenize", "/usage")
