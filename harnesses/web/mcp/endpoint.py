"""`/mcp`: the Model Context Protocol by streamable HTTP, where the extra `mcp` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from harnesses.web.app_state import AppState
from harnesses.web.auth.middleware import refuse
from llm.mcp.servers import HOW_TO_INSTALL

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
_MOST_BYTES = 256 * 1024  # of a request


class McpEndpoint:
    """ASGI application: each POST is one message, and nothing is kept between two of them.

    There is no stream to open by GET and no session to end by DELETE, so both are refused, as the
    protocol lets a server do.
    """

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None

    @asynccontextmanager
    async def running(self, state: AppState) -> AsyncIterator[None]:
        """Answer requests over the parts in `state` until this is left.

        What that needs is imported with the first request: it takes about as long as all the rest
        of the site takes to start.
        """
        if find_spec("mcp") is None:
            yield
            return
        self._manager = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self._serve(state, self._manager))
        try:
            yield
        finally:
            self._manager = None
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def _serve(
        self, state: AppState, ready: asyncio.Future[StreamableHTTPSessionManager]
    ) -> None:
        """Run the manager from the first request on, and hand it over by `ready`."""
        await self._asked.wait()
        try:
            server = await asyncio.to_thread(import_module, "harnesses.web.mcp.server")
            http = await asyncio.to_thread(import_module, "mcp.server.streamable_http_manager")
            manager: StreamableHTTPSessionManager = http.StreamableHTTPSessionManager(
                server.create_server(state), stateless=True, max_request_body_size=_MOST_BYTES
            )
            async with manager.run():
                ready.set_result(manager)
                await asyncio.Event().wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._manager is None:
            answer: Response = refuse(
                HTTPStatus.NOT_IMPLEMENTED,
                "This site does not speak MCP yet: whoever runs it can install what that needs, by"
                f" {HOW_TO_INSTALL}, and start it again.",
            )
            await answer(scope, receive, send)
        elif scope["method"] != "POST":
            answer = refuse(
                HTTPStatus.METHOD_NOT_ALLOWED, "Send MCP messages by POST.", {"Allow": "POST"}
            )
            await answer(scope, receive, send)
        else:
            self._asked.set()
            # One that leaves meanwhile must not take the manager from all others.
            manager = await asyncio.shield(self._manager)
            await manager.handle_request(scope, receive, send)
