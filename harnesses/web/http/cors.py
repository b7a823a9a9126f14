"""Other sites whose scripts may read the log API."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send


class Cors:
    """ASGI middleware: the API, and nothing else, for the scripts of `origins`.

    They bring a token in a header. Cookies are not let through, so a login in this browser opens
    nothing to them.
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
        """Add the headers of CORS to answers of the API."""
        is_api = scope["type"] == "http" and scope["path"].startswith("/api/")
        await (self._open if is_api else self._app)(scope, receive, send)
