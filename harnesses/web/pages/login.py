"""The page that asks a browser for the token, once."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harnesses.web.app_state import AppStateDep, address_of
from harnesses.web.auth.middleware import local_path, refuse
from harnesses.web.auth.tokens import AccessTokens
from harnesses.web.pages.form import read_form
from harnesses.web.rendering.view import page

router = APIRouter(include_in_schema=False)
Next = Annotated[str, Param(max_length=2000)]


@router.get("/login")
async def show_login(request: Request, next: Next = "/") -> Response:
    """The form; `next` is the page to go on to."""
    return page(request, "login.html", next=local_path(next), wrong=False)


@router.post("/login")
async def log_in(request: Request, state: AppStateDep) -> Response:
    """Take the token and go on, or ask again."""
    form = await read_form(request)
    target = local_path(form.get("next", "/"))
    tokens, token = AccessTokens(state.settings), form.get("token", "").strip()
    address = address_of(request)
    if wait := math.ceil(state.logins.wait(address)):
        text = f"There were too many wrong tokens from your address; try again in {wait} s."
        return refuse(HTTPStatus.TOO_MANY_REQUESTS, text, {"Retry-After": str(wait)})
    if tokens.is_required and tokens.opened_by(token) is None:
        state.logins.failed(address)
        status = HTTPStatus.UNAUTHORIZED
        return page(request, "login.html", status=status, next=target, wrong=True)
    state.logins.succeeded(address)
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    tokens.remember(token, response, secure=request.url.scheme == "https")
    return response
