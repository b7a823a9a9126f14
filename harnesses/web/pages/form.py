"""Parsing of form bodies."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import HTTPException
from starlette.requests import Request

_MAX_FORM_BYTES = 10_000  # bytes


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a URL-encoded form; the last one wins if a name is repeated.

    Raises HTTPException 413 for a long body.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "That is too long for this form.")
    return dict(parse_qsl(body.decode("utf-8", "replace")))
