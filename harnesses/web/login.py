"""The page that asks a browser for the token, once."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harnesses.web.guard import local_path
from harnesses.web.site import TheSite
from harnesses.web.token import Token
from harnesses.web.view import page

_MOST = 10_000  # bytes of a form
router = APIRouter(include_in_schema=False)
Next = Annotated[str, Param(max_length=2000)]


@router.get("/login")
async def show_login(request: Request, next: Next = "/") -> Response:
    """The form; `next` is the page to go on to."""
    return page(request, "login.html", next=local_path(next), wrong=False)


@router.post("/login")
async def log_in(request: Request, site: TheSite) -> Response:
    """Take the token and go on, or ask again."""
    form = parse_qs(await _body(request))
    target = local_path(form.get("next", ["/"])[0])
    token = Token(site.settings)
    if token.required and not token.fits(form.get("token", [""])[0].strip()):
        status = HTTPStatus.UNAUTHORIZED
        return page(request, "login.html", status=status, next=target, wrong=True)
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    token.remember(response, secure=request.url.scheme == "https")
    return response


async def _body(request: Request) -> str:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST:
            raise HTTPException(413, "That is too long for a token.")
    return body.decode("utf-8", "replace")
