"""`/mcp`: the Model Context Protocol over streamable HTTP, if the extra `mcp` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anyio import create_task_group, sleep_forever
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import Receive, Scope, Send

from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import refuse
from llm.mcp.servers import HOW_TO_INSTALL

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
_MAX_BODY_BYTES = 256 * 1024  # of a request body


class McpEndpoint:
    """Stateless ASGI application, in which each POST is one message.

    It offers no stream by GET and has no session to end by DELETE, and so answers 405 to both, as
    the protocol allows.
    """

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._tasks: TaskGroup | None = None
        self._state: AppState | None = None

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
        manager = http.StreamableHTTPSessionManager(
            server.create_server(self._state),
            stateless=True,
            max_request_body_size=_MAX_BODY_BYTES,
        )
        async with manager.run():
            task_status.started(manager)
            await sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a POST on to the session manager, once that runs; refuse every other request."""
        if self._tasks is None:
            refusal = refuse(
                HTTPStatus.NOT_IMPLEMENTED,
                "This site does not serve MCP yet: whoever runs it can install the extra with"
                f" {HOW_TO_INSTALL}, and restart it.",
            )
            await refusal(scope, receive, send)
        elif scope["method"] != "POST":
            refusal = refuse(
                HTTPStatus.METHOD_NOT_ALLOWED, "Send MCP messages by POST.", {"Allow": "POST"}
            )
            await refusal(scope, receive, send)
        else:
            async with self._starting:
                self._manager = self._manager or await self._tasks.start(self._run_manager)
            await self._manager.handle_request(scope, receive, send)
