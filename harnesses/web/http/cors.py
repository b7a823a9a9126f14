"""Cross-origin resource sharing (CORS) for the log API."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class Cors:
    """ASGI middleware that opens the API, and nothing else, to scripts of the sites in `origins`.

    They send a token in a header. Credentialed requests are not allowed, so they cannot use the
    login of this browser.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._open = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=["GET"],
            allow_headers=["Authorization", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer preflights of the API, and add CORS headers to its responses."""
        is_api = scope["type"] == "http" and scope["path"].startswith("/api/")
        await (self._open if is_api else self._app)(scope, receive, send)
