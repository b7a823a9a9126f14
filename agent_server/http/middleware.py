"""The ASGI middleware around every request: its id, key, log line and metrics."""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from secrets import token_hex

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_server.auth.key_cache import ApiKeyCache
from agent_server.errors import (
    ApiError,
    ClientGone,
    EngineUnavailable,
    Forbidden,
    NotFound,
    Unauthorized,
)
from agent_server.http.responses import error_event, error_response, too_large
from agent_server.metering.accounts import Metering
from agent_server.metering.request_context import RequestContext
from terrarium.loopback import host_of, is_loopback

log = structlog.get_logger()

# Visible ASCII only: the id is sent back in a header and written to the log.
_ID = re.compile(rb"[\x21-\x7e]{1,128}")

PUBLIC_PATHS, METRICS_PATH = frozenset({"/health", "/ready"}), "/metrics"
"""Paths that are polled: their requests are logged at debug level. The first need no key, that of
the metrics needs none on this machine."""

ROUTINE = frozenset(
    {("/v1/models/{name:path}", NotFound.status), ("/v1/tendrils/{name}", HTTPStatus.NO_CONTENT)}
)
"""Routes and statuses that are logged for debugging only. Tendrils look models up by names that
mostly do not exist, and report every ten seconds: neither is news, and the reports of three
tendrils would bury everything else."""

POLICY_VIOLATION = 1008
"""Close code of a refused websocket (RFC 6455, 7.4.1)."""


class RequestMiddleware:
    """Gives each request an id and a context, logs and counts it, and catches what nothing else has
    caught.

    It is authenticated before any of its body is read. A body that declares more than
    `max_body_size` bytes is refused as well: Starlette's middleware would answer it with plain
    text; it counts the bytes of bodies that declare no length.
    """

    def __init__(
        self, app: ASGIApp, metering: Metering, api_keys: ApiKeyCache, max_body_size: int
    ) -> None:
        self._app = app
        self._metering = metering
        self._api_keys = api_keys
        self._max_body_size = max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection; only those of HTTP are logged."""
        if scope["type"] == "websocket":
            # No endpoint speaks websocket, and the keys are checked for HTTP requests only. Our own
            # uvicorn accepts no websockets, but the proxy of Ray Serve passes them on.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        wanted, cuts = headers.get(b"x-request-id", b""), b"x-cuts-answers" in headers
        request_id = wanted if _ID.fullmatch(wanted) else token_hex(16).encode()
        began, path = time.monotonic(), scope["path"]
        status: int | None = None
        is_complete = is_stream = False

        async def send_tracked(message: Message) -> None:
            nonlocal status, is_complete, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message["headers"]).get(b"content-type", b"")
                is_stream = kind.startswith(b"text/event-stream")
                milliseconds = str(round(1000 * (time.monotonic() - began)))
                named = {"openai-processing-ms": milliseconds, "x-request-id": request_id.decode()}
                if context := scope.get("request_context"):
                    named |= self._metering.accounts.rate_limits(context.key)
                added = [(name.encode(), value.encode()) for name, value in named.items()]
                message["headers"] = [*message["headers"], *added]
            elif message["type"] == "http.response.body":
                is_complete = not message.get("more_body", False)
            await send(message)

        # Each request has its own copy of the context, so nothing has to be unbound.
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        try:
            try:
                self._authenticate(scope)
            except ApiError as refusal:
                await error_response(refusal, path)(scope, receive, send_tracked)
            else:
                await self._app(scope, receive, send_tracked)
        except asyncio.CancelledError:
            # Only uvicorn cancels a request, when the grace period of a shutdown is over. The
            # client is told by a 503, or by the last event of its stream.
            error = EngineUnavailable("the server is stopping")
            if status is None:
                await error_response(error, path)(scope, receive, send_tracked)
            elif not is_complete:
                last = error_event(error, path) if is_stream else b""
                await send_tracked({"type": "http.response.body", "body": last})
        except Exception:
            log.exception("request.crashed")
            if status is None:
                text = f"something went wrong here; the log has it as {request_id.decode()}"
                await error_response(ApiError(text), path)(scope, receive, send_tracked)
        finally:
            # Our tendrils leave in the middle of an answer of which they have enough.
            is_answered = is_complete or (cuts and is_stream)
            outcome = status if status and is_answered else ClientGone.status
            self._record(scope, outcome, time.monotonic() - began)

    def _record(self, scope: Scope, outcome: int, seconds: float) -> None:
        """Count and log a request with the status of its `outcome`."""
        # The route's pattern: with paths as labels, clients could create series without limit.
        route = getattr(scope.get("route"), "path", "other")
        self._metering.metrics.count_response(route, outcome, seconds)
        is_polled = (route, outcome) in ROUTINE or route in {*PUBLIC_PATHS, METRICS_PATH}
        tell = log.debug if is_polled else log.info
        facts = context.log_fields() if (context := scope.get("request_context")) else {}
        tell("request.done", route=route, status=outcome, seconds=round(seconds, 3), **facts)

    def _authenticate(self, scope: Scope) -> None:
        """Put the context of a request into its scope. Raises ApiError if it is refused."""
        headers = dict(scope["headers"])
        # DNS rebinding: a web page can resolve its own name to 127.0.0.1, and the browser then
        # takes this server for the page's own origin. The Host header still has the page's name.
        is_local = is_loopback(host_of(headers.get(b"host", b"").decode("latin-1")))
        if self._api_keys.is_open and not is_local:
            raise Forbidden(
                "without a key this server answers to loopback names such as localhost only"
            )
        if scope["path"] in PUBLIC_PATHS:
            return
        is_metrics, client = scope["path"] == METRICS_PATH, scope["client"]
        is_forwarded = b"x-forwarded-for" in headers  # by a proxy on this machine
        if is_metrics and is_local and client and is_loopback(client[0]) and not is_forwarded:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        # Anthropic's clients send `x-api-key`.
        given = given.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        owner = self._api_keys.authenticate(given)
        if owner is None:
            reason = "wrong or expired key" if given else "a key is needed"
            raise Unauthorized(f"{reason}; send your key as Authorization: Bearer KEY")
        if is_metrics and not owner.is_own:
            raise Forbidden("the metrics of all keys are for the admin key and for [server.keys]")
        scope["request_context"] = context = RequestContext.from_headers(owner, headers)
        if context.size > self._max_body_size:
            raise too_large(self._max_body_size)
