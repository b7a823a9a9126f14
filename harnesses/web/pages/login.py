"""The login page, which asks a browser for the token once, and the logout."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harnesses.web.app_state import AppStateDep
from harnesses.web.auth.client_address import address_of
from harnesses.web.auth.middleware import ask_to_wait, local_path
from harnesses.web.auth.tokens import AccessTokens
from harnesses.web.pages.chat import COOKIE as CHAT
from harnesses.web.pages.form import read_form
from harnesses.web.rendering.view import page

router = APIRouter(include_in_schema=False)
Next = Annotated[str, Param(max_length=2000)]


@router.get("/login")
async def show_login(request: Request, next: Next = "/") -> Response:
    """Show the login form; `next` is the page to return to."""
    return page(request, "login.html", next=local_path(next), wrong=False)


@router.post("/login")
async def log_in(request: Request, state: AppStateDep) -> Response:
    """Check the token; log in and redirect to `next`, or show the form again."""
    form = await read_form(request)
    target = local_path(form.get("next", "/"))
    tokens, token = AccessTokens(state.settings, state.web_logins), form.get("token", "").strip()
    address = address_of(request)
    if wait := state.logins.wait(address):
        return ask_to_wait(wait)
    if tokens.is_required:
        opened = tokens.scope_of(token)
        state.logins.record(address, token, opened)
        if opened is None:
            status = HTTPStatus.UNAUTHORIZED
            return page(request, "login.html", status=status, next=target, wrong=True)
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    if tokens.is_required:
        await tokens.log_in(token, response, secure=request.url.scheme == "https")
    return response


@router.post("/logout")
async def log_out(request: Request, state: AppStateDep) -> Response:
    """End the login of this browser, and delete the cookie of its conversation."""
    response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    await AccessTokens(state.settings, state.web_logins).log_out(request, response)
    response.delete_cookie(CHAT)
    return response
