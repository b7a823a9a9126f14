"""Preferences of a browser: the time zone."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harnesses.web.auth.middleware import local_path
from harnesses.web.pages.form import read_form
from harnesses.web.rendering.timezones import COOKIE, zone_names
from harnesses.web.rendering.view import page

_COOKIE_SECONDS = 365 * 86400
router = APIRouter(include_in_schema=False)


@router.get("/zone")
async def show_zones(
    request: Request, next: Annotated[str, Param(max_length=2000)] = "/"
) -> Response:
    """Show the time zones to choose from; `next` is the page to return to."""
    return page(request, "zone.html", next=local_path(next), names=sorted(zone_names()))


@router.post("/zone")
async def choose_zone(request: Request) -> Response:
    """Store the chosen time zone in a cookie, and redirect to `next`."""
    form = await read_form(request)
    name = form.get("zone", "")
    if name not in zone_names():
        raise HTTPException(422, f"{name} is no time zone; choose one such as Europe/Vienna.")
    target = _in_zone(local_path(form.get("next", "/")), name)
    response = RedirectResponse(target, HTTPStatus.SEE_OTHER)
    response.set_cookie(
        COOKIE,
        name,
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


def _in_zone(path: str, zone: str) -> str:
    """Return an address of this site with another zone in its `tz`, if it has one, which would take
    precedence over the cookie."""
    address = urlsplit(path)
    query = parse_qsl(address.query, keep_blank_values=True)
    changed = [(key, zone if key == "tz" else value) for key, value in query]
    return address._replace(query=urlencode(changed)).geturl() if changed != query else path
