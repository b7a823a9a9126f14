"""`/mcp`: the Model Context Protocol over streamable HTTP, if the extra `mcp` is installed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
        self._asked = asyncio.Event()
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None

    @asynccontextmanager
    async def running(self, state: AppState) -> AsyncIterator[None]:
        """Answer requests, with the components in `state`, until the context is left.

        The MCP SDK is imported at the first request, because that takes about as long as the rest
        of the site needs to start.
        """
        if find_spec("mcp") is None:
            yield
            return
        ready: asyncio.Future[StreamableHTTPSessionManager]
        ready = self._manager = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            # A task of its own, because the manager holds an anyio task group, which must be
            # entered and left in the same task, and the task of the first request ends too early.
            await self._asked.wait()
            try:
                server = await asyncio.to_thread(import_module, "harnesses.web.mcp.server")
                http = await asyncio.to_thread(import_module, "mcp.server.streamable_http_manager")
                manager = http.StreamableHTTPSessionManager(
                    server.create_server(state),
                    stateless=True,
                    max_request_body_size=_MAX_BODY_BYTES,
                )
                async with manager.run():
                    ready.set_result(manager)
                    await asyncio.Event().wait()
            except Exception as error:
                if ready.done():
                    raise
                ready.set_exception(error)  # for the requests

        serving = asyncio.create_task(serve())
        try:
            yield
        finally:
            self._manager = None
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a POST on to the session manager, once that runs; refuse every other request."""
        if self._manager is None:
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
            self._asked.set()
            # Without the shield, a cancelled request would cancel the future that all others await.
            manager = await asyncio.shield(self._manager)
            await manager.handle_request(scope, receive, send)
