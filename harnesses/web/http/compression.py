"""Compression of responses, where their length discloses nothing."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_GZIP_LEVEL = 5  # half the time of the highest level for nearly the same size
_MIN_BYTES = 1000  # bytes; shorter bodies are not compressed


class Compression:
    """ASGI middleware that gzips responses for clients that accept it, except live streams.

    Responses to requests that another site caused, as `Sec-Fetch-Site` tells, are not compressed:
    the length of a compressed page tells whether a word of its address also occurs in its text, so
    an attacker who causes requests and observes the traffic could guess at the log (BREACH).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._gzip = GZipMiddleware(app, minimum_size=_MIN_BYTES, compresslevel=_GZIP_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compress or pass on."""
        await (self._gzip if _may_compress(scope) else self._app)(scope, receive, send)


def _may_compress(scope: Scope) -> bool:
    # POST /chat streams its answer in small pieces. Server-sent events, which are fetched by GET,
    # are left out by `GZipMiddleware` itself.
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    from_site = Headers(scope=scope).get("sec-fetch-site", "none")
    return from_site in ("none", "same-origin")
