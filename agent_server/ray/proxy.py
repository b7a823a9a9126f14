"""Middleware of Ray Serve's HTTP proxies that retries a request when its server dies.

Each proxy calls `middlewares`, which RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import structlog
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_server.errors import EngineUnavailable
from agent_server.http.responses import error_event, error_response

log = structlog.get_logger()

MAX_ATTEMPTS = 8
"""Most attempts for one request before the first byte of its answer."""

RETRY_PAUSE = 0.2
"""Seconds between two attempts."""

MAX_REPLAYED_BYTES = 32 * 1024 * 1024
"""Most bytes of a request's body that are buffered; a longer one is sent once."""


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
        # The whole body before the first attempt, so that another one can begin with it.
        body, size, has_more = list[Message](), 0, True
        while has_more and size <= MAX_REPLAYED_BYTES:
            body.append(await receive())
            size += len(body[-1].get("body", b""))
            has_more = body[-1].get("more_body", False)
        for _ in range(1 if has_more else MAX_ATTEMPTS):
            attempt = Attempt(iter(body), receive, send)
            # A copy, as Ray appends a request id to the list of headers.
            copied = {**scope, "headers": [*scope["headers"]]}
            await self._app(copied, attempt.receive, attempt.send)
            if attempt.is_complete or attempt.is_client_gone:
                return
            if attempt.has_begun:
                if attempt.is_stream:
                    text = "the server went away in the middle of the answer; ask again"
                    last = error_event(EngineUnavailable(text), scope["path"])
                    await send({"type": "http.response.body", "body": last})
                return
            log.warning("server.lost")
            await asyncio.sleep(RETRY_PAUSE)
        error = EngineUnavailable("no server can be reached; ask again in a moment")
        await error_response(error, scope["path"])(scope, receive, send)


@dataclass(slots=True)
class Attempt:
    """One attempt: the request's `buffered` messages and what the client sends after them, and the
    progress of the response; errors of Ray itself are suppressed."""

    buffered: Iterator[Message]
    client_receive: Receive
    client_send: Send
    is_client_gone: bool = False
    is_refused: bool = False
    has_begun: bool = False
    is_stream: bool = False
    is_complete: bool = False

    async def receive(self) -> Message:
        """Return the next message of the request."""
        message = next(self.buffered, None) or await self.client_receive()
        self.is_client_gone = message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        """Forward a message to the client, unless it belongs to an error of Ray itself."""
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            kind = headers.get(b"content-type", b"")
            # The agent server sends its errors as JSON, so a plain text is from Ray: 404 while the
            # application stops or starts.
            is_error = message["status"] >= 500 or message["status"] == 404
            self.is_refused = is_error and kind.startswith(b"text/plain")
            self.has_begun = not self.is_refused
            self.is_stream = kind.startswith(b"text/event-stream")
            # Ray appends a second x-request-id; the dict has dropped the duplicate.
            message = {**message, "headers": [*headers.items()]}
        elif message["type"] == "http.response.body" and not self.is_refused:
            self.is_complete = not message.get("more_body", False)
        if not self.is_refused:
            await self.client_send(message)
