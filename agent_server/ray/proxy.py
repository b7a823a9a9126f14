"""Middleware of Ray Serve's HTTP proxies that retries a request when its server dies.

Each proxy calls `middlewares`, which RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names.
"""

from __future__ import annotations

import asyncio

import structlog
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_server.errors import EngineUnavailable
from agent_server.http.errors import error_event, error_response

log = structlog.get_logger()

MAX_ATTEMPTS = 8
"""Most attempts for one request before the first byte of its answer."""

RETRY_PAUSE = 0.2
"""Seconds between two attempts."""

MAX_REPLAYED_BYTES = 32 * 1024 * 1024
"""Most bytes of a request's body that are buffered for another attempt."""


def middlewares() -> list[Middleware]:
    """Return the middlewares of a proxy."""
    return [Middleware(RetryMiddleware)]


class RetryMiddleware:
    """Repeats a request at another server when one dies before the first byte of its answer.

    Later the client has a part of the answer, which a repetition could not continue: a stream ends
    with an error event.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = ReplayedBody(receive)
        for _ in range(MAX_ATTEMPTS):
            response = ProxiedResponse(send)
            # A copy, as Ray appends a request id to the list of headers.
            await self._app(
                {**scope, "headers": [*scope["headers"]]}, body.from_start(), response.send
            )
            if response.is_complete or body.is_client_gone:
                return
            if response.has_begun:
                if response.is_stream:
                    text = "the server went away in the middle of the answer; ask again"
                    last = error_event(EngineUnavailable(text), scope["path"])
                    await send({"type": "http.response.body", "body": last})
                return
            if not body.is_kept:
                break
            log.warning("server.lost")
            await asyncio.sleep(RETRY_PAUSE)
        error = EngineUnavailable("no server can be reached; ask again in a moment")
        await error_response(error, scope["path"])(scope, receive, send)


class ReplayedBody:
    """The body of a request, buffered so that every attempt can receive it from the start."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []
        self._size = 0
        self.is_client_gone = False

    @property
    def is_kept(self) -> bool:
        """True while the body is short enough to be buffered for another attempt."""
        return self._size <= MAX_REPLAYED_BYTES

    def from_start(self) -> Receive:
        """Return a `receive` that begins with the first message, for another attempt."""
        # A snapshot: what arrives from now on is returned by `_next`, and buffered there.
        kept = iter(tuple(self._kept))

        async def receive() -> Message:
            message = next(kept, None)
            return message if message is not None else await self._next()

        return receive

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.is_client_gone = True
            return message
        self._size += len(message.get("body", b""))
        if self.is_kept:
            self._kept.append(message)
        else:
            self._kept.clear()
        return message


class ProxiedResponse:
    """The response of one attempt and its progress; errors of Ray itself are suppressed."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_refused = False
        self.has_begun = False
        self.is_stream = False
        self.is_complete = False

    async def send(self, message: Message) -> None:
        """Forward a message to the client, unless it belongs to an error of Ray itself."""
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            kind = headers.get(b"content-type", b"")
            # The agent server sends its errors as JSON, so a plain text is from Ray.
            self._is_refused = message["status"] >= 500 and kind.startswith(b"text/plain")
            if self._is_refused:
                return
            self.has_begun = True
            self.is_stream = kind.startswith(b"text/event-stream")
            # Ray appends a second x-request-id; the dict has dropped the duplicate.
            message = {**message, "headers": [*headers.items()]}
        elif self._is_refused:
            return
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)
