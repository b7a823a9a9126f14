"""Entity tags and conditional requests (RFC 9110, sections 8.8.3 and 13.1.2)."""

from __future__ import annotations

from hashlib import sha256

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The headers of the 200 that a 304 repeats (RFC 9110, section 15.4.5), and Set-Cookie, which takes
# effect with any status.
_HEADERS_OF_304 = {b"cache-control", b"etag", b"expires", b"set-cookie", b"vary"}


class ETag:
    """ASGI middleware that tags every complete response to a GET, and sends 304 to a client that
    has it already."""

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
            if message["type"] == "http.response.start" and _can_have_one(message):
                start = message  # held back until the body, which decides on tag and status
                return
            if start is None:
                await send(message)
                return
            held, start = start, None
            if message.get("more_body"):  # a tag needs the whole body, which may be endless
                await send(held)
                await send(message)
                return
            tag = _tag(message.get("body", b""))
            MutableHeaders(scope=held)["ETag"] = tag
            if _matches(known, tag):
                held, message = _not_modified(held), {"type": "http.response.body", "body": b""}
            await send(held)
            await send(message)

        await self._app(scope, receive, send_tagged)


def _can_have_one(start: Message) -> bool:
    headers = Headers(raw=start["headers"])
    return start["status"] == 200 and "content-length" in headers and "etag" not in headers


def _tag(body: bytes) -> str:
    """Return a weak tag: the same one serves the compressed body, which differs in its bytes."""
    return f'W/"{sha256(body).hexdigest()[:32]}"'


def _matches(known: str, tag: str) -> bool:
    """Return True if `If-None-Match` lists the tag or is `*`, by weak comparison (RFC 9110,
    section 8.8.3.2)."""
    tags = [each.strip().removeprefix("W/") for each in known.split(",")]
    return known.strip() == "*" or tag.removeprefix("W/") in tags


def _not_modified(start: Message) -> Message:
    headers = [(name, value) for name, value in start["headers"] if name.lower() in _HEADERS_OF_304]
    return {**start, "status": 304, "headers": headers}
