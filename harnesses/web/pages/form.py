"""The body of a page's form."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import HTTPException
from starlette.requests import Request

_MOST = 10_000  # bytes of a form


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of a field that is there twice, the last. Raises
    HTTPException."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST:
            raise HTTPException(413, "That is too long for this form.")
    return dict(parse_qsl(body.decode("utf-8", "replace")))
