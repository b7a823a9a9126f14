"""`/mcp`: the Model Context Protocol by streamable HTTP, where the extra `mcp` is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
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
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self, state: AppState) -> AsyncIterator[None]:
        """Answer requests over the parts in `state` until this is left."""
        if find_spec("mcp") is None:
            yield
            return
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from harnesses.web.mcp.server import create_server

        manager = StreamableHTTPSessionManager(
            create_server(state), stateless=True, max_request_body_size=_MOST_BYTES
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

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
            await self._manager.handle_request(scope, receive, send)
