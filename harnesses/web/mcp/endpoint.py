"""`/mcp`: the Model Context Protocol over streamable HTTP, if the extra `mcp` is installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from secrets import token_hex
from typing import TYPE_CHECKING

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup, TaskStatus
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import refuse
from llm.mcp.servers import HOW_TO_INSTALL

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"
_MAX_BODY_BYTES = 256 * 1024  # of a request body


class McpEndpoint:
    """Stateless ASGI application, in which each POST is one message.

    It offers no stream by GET and has no session to end by DELETE, and so answers 405 to both, as
    the protocol allows. A session is only an id by which the calls of one client can be cancelled,
    and is valid after a restart, too.
    """

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._tasks: TaskGroup | None = None
        self._state: AppState | None = None
        self._calls: dict[tuple[str, str | int], CancelScope] = {}  # by session and request

    @asynccontextmanager
    async def running(self, state: AppState) -> AsyncIterator[None]:
        """Answer requests, with the components in `state`, until the context is left."""
        if find_spec("mcp") is None:
            yield
            return
        self._state = state
        async with create_task_group() as self._tasks:
            yield
            self._tasks.cancel_scope.cancel()

    async def _run_manager(self, *, task_status: TaskStatus[StreamableHTTPSessionManager]) -> None:
        """Run the session manager until cancelled, in a task of its own: the manager holds a task
        group, which must be entered and left in the same task, and that of a request ends."""
        # The SDK is imported only now, at the first request, because that takes about as long as
        # the rest of the site needs to start.
        server = await asyncio.to_thread(import_module, "harnesses.web.mcp.server")
        http = await asyncio.to_thread(import_module, "mcp.server.streamable_http_manager")
        bus = import_module("mcp.server.subscriptions").InMemorySubscriptionBus()
        manager = http.StreamableHTTPSessionManager(
            server.create_server(self._state, bus),
            stateless=True,
            max_request_body_size=_MAX_BODY_BYTES,
        )
        async with manager.run():
            task_status.started(manager)
            await server.announce_tools(self._state, bus)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a POST on to the session manager, once that runs; refuse every other request."""
        if self._tasks is None:
            refusal = refuse(
                Request(scope),
                HTTPStatus.NOT_IMPLEMENTED,
                "This site does not serve MCP yet: its operator can install the extra with"
                f" {HOW_TO_INSTALL}, and restart it.",
            )
            await refusal(scope, receive, send)
        elif scope["method"] != "POST":
            refusal = refuse(
                Request(scope),
                HTTPStatus.METHOD_NOT_ALLOWED,
                "Send MCP messages by POST.",
                {"Allow": "POST"},
            )
            await refusal(scope, receive, send)
        else:
            async with self._starting:
                self._manager = self._manager or await self._tasks.start(self._run_manager)
            headers = Headers(scope=scope)
            if session := headers.get(_SESSION):
                await self._handle(self._manager.handle_request, session, scope, receive, send)
            else:

                async def send_named(message: Message) -> None:
                    # By protocols before 2026-07-28 the first message of a client names no version;
                    # the client gets an id, which its later messages repeat.
                    if message["type"] == "http.response.start" and _VERSION not in headers:
                        MutableHeaders(scope=message)[_SESSION] = token_hex(16)
                    await send(message)

                await self._manager.handle_request(scope, receive, send_named)

    async def _handle(
        self, handle: ASGIApp, session: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle a message of a session so that a later one can cancel it."""
        received, size = [await receive()], 0
        while received[-1].get("more_body") and size <= _MAX_BODY_BYTES:
            received.append(await receive())
            size += len(received[-1].get("body", b""))
        unread = iter(received)
        is_begun = is_complete = False

        async def replay() -> Message:
            return next(unread, None) or await receive()

        async def send_tracked(message: Message) -> None:
            nonlocal is_begun, is_complete
            is_begun = True
            is_complete = message["type"].endswith("body") and not message.get("more_body", False)
            await send(message)

        call = None
        body: object = None
        with suppress(ValueError, RecursionError):
            body = json.loads(b"".join(each.get("body", b"") for each in received))
        match body:
            case {
                "method": "notifications/cancelled",
                "params": {"requestId": str() | int() as of},
            }:
                if running := self._calls.get((session, of)):
                    running.cancel()
            case {"method": str(), "id": str() | int() as number}:
                call = session, number
        with CancelScope() as cancellable:
            if call:
                self._calls[call] = cancellable
            try:
                await handle(scope, replay, send_tracked)
            finally:
                if call:
                    self._calls.pop(call, None)
        if cancellable.cancelled_caught and not is_complete:  # the client reads no answer
            if not is_begun:
                await send({"type": "http.response.start", "status": 202, "headers": []})
            await send({"type": "http.response.body", "body": b""})
