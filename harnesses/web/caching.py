"""Middleware around responses: entity tags, and compression where the length discloses nothing."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The headers of the 200 that a 304 repeats (RFC 9110, section 15.4.5), and Set-Cookie, which takes
# effect with any status.
_HEADERS_OF_304 = {b"cache-control", b"etag", b"expires", b"set-cookie", b"vary"}


class Only:
    """ASGI middleware that applies another `middleware` to the HTTP requests that meet a
    condition."""

    def __init__(
        self,
        app: ASGIApp,
        middleware: Callable[[ASGIApp], ASGIApp],
        condition: Callable[[Scope], bool],
    ) -> None:
        self._app = app
        self._inside = middleware(app)
        self._condition = condition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the middleware, or around it."""
        applies = scope["type"] == "http" and self._condition(scope)
        await (self._inside if applies else self._app)(scope, receive, send)


def may_compress(scope: Scope) -> bool:
    """Return whether the response to a request may be compressed.

    Not if another site caused it, as `Sec-Fetch-Site` tells: the length of a compressed page tells
    whether a word of its address also occurs in its text, so an attacker who causes requests and
    observes the traffic could guess at the log (BREACH).
    """
    # POST /chat streams its answer in small pieces. Server-sent events, which are fetched by GET,
    # are left out by `GZipMiddleware` itself.
    from_site = Headers(scope=scope).get("sec-fetch-site", "none")
    return scope["method"] == "GET" and from_site in ("none", "same-origin")


class ETag:
    """ASGI middleware that tags every complete response to a GET, and sends 304 to a client that
    has it already (RFC 9110, sections 8.8.3 and 13.1.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tag the response, unless it is streamed or has a tag already."""
        if scope["type"] != "http" or scope["method"] != "GET":  # HEAD comes as GET
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        start: Message | None = None

        async def send_tagged(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                if (
                    message["status"] == 200
                    and "content-length" in headers
                    and "etag" not in headers
                ):
                    start = message  # held back until the body, which decides on tag and status
                    return
            held, start = start, None
            if held is None:
                await send(message)
                return
            if not message.get("more_body"):  # a tag needs the whole body, which may be endless
                # Weak: the same tag serves the compressed body, which differs in its bytes.
                tag = f'W/"{sha256(message.get("body", b"")).hexdigest()[:32]}"'
                MutableHeaders(scope=held)["ETag"] = tag
                if known.strip() == "*" or tag in map(_weak, known.split(",")):
                    kept = [each for each in held["headers"] if each[0].lower() in _HEADERS_OF_304]
                    held = {**held, "status": 304, "headers": kept}
                    message = {"type": "http.response.body", "body": b""}
            await send(held)
            await send(message)

        await self._app(scope, receive, send_tagged)


def _weak(tag: str) -> str:
    """Return a tag of `If-None-Match` as a weak one, as which it is compared (RFC 9110, section
    8.8.3.2)."""
    return f"W/{tag.strip().removeprefix('W/')}"
