"""A size limit for request bodies, which are read into memory as a whole."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harnesses.web.auth.middleware import refuse


class BodySizeLimit:
    """ASGI middleware that answers 413 to bodies of more than `max_bytes` bytes, with or without a
    `Content-Length`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._advice = (
            f"The request is longer than {max_bytes} bytes; send a shorter text or image."
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a body whose declared length is too large; count the bytes of the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self._max_bytes:
            refusal = refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._advice)
            await refusal(scope, receive, send)
            return
        seen = 0

        async def count_bytes() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                # FastAPI passes on an HTTPException while it reads a body; any other becomes a 400.
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._advice)
            return message

        await self._app(scope, count_bytes, send)
