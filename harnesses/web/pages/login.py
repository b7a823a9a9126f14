"""Login and time zone of a browser, which keeps both as cookies."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi import Query as Param

from harnesses.web.app_state import AppStateDep
from harnesses.web.auth.middleware import ask_to_wait, local_path, see_other
from harnesses.web.auth.tokens import address_of
from harnesses.web.rendering.timezones import COOKIE as ZONE
from harnesses.web.rendering.timezones import zone_names
from harnesses.web.rendering.view import keep, page, read_form
from harnesses.web.visitors import COOKIE as CHAT

router = APIRouter(include_in_schema=False)
Next = Annotated[str, Param(max_length=2000)]


@router.get("/login")
async def show_login(request: Request, state: AppStateDep, next: Next = "/") -> Response:
    """Show the login form, unless no token is needed; `next` is the page to return to."""
    if not state.tokens.is_required:
        return see_other(local_path(next))
    return page(request, "login.html", next=local_path(next), wrong=False)


@router.post("/login")
async def log_in(request: Request, state: AppStateDep) -> Response:
    """Check the token; log in and redirect to `next`, or show the form again."""
    form = await read_form(request)
    target = local_path(form.get("next", "/"))
    tokens, token = state.tokens, form.get("token", "").strip()
    response = see_other(target)
    if tokens.is_required:
        holder = tokens.holder_of(token)
        if wait := state.delays.check(address_of(request), token, holder):
            return ask_to_wait(request, wait)
        if holder is None:
            status = HTTPStatus.UNAUTHORIZED
            return page(request, "login.html", status=status, next=target, wrong=True)
        await tokens.log_in(token, response, secure=request.url.scheme == "https")
    return response


@router.post("/logout")
async def log_out(request: Request, state: AppStateDep) -> Response:
    """End the login of this browser, and delete the cookie of its conversation."""
    response = see_other("/")
    await state.tokens.log_out(request, response)
    response.delete_cookie(CHAT)
    return response


@router.get("/zone")
async def show_zones(request: Request, next: Next = "/") -> Response:
    """Show the time zones to choose from; `next` is the page to return to."""
    return page(request, "zone.html", next=local_path(next), names=sorted(zone_names()))


@router.post("/zone")
async def choose_zone(request: Request) -> Response:
    """Store the chosen time zone in a cookie, and redirect to `next`."""
    form = await read_form(request)
    name = form.get("zone", "")
    if name not in zone_names():
        raise HTTPException(422, f"{name} is not a time zone; choose one such as Europe/Vienna.")
    target = urlsplit(local_path(form.get("next", "/")))
    # A zone in the address would take precedence over the cookie.
    query = parse_qsl(target.query, keep_blank_values=True)
    changed = [(key, name if key == "tz" else value) for key, value in query]
    if changed != query:
        target = target._replace(query=urlencode(changed))
    response = see_other(target.geturl())
    keep(request, response, ZONE, name)
    return response
