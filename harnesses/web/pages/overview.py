"""The overview pages, of all channels and of all tendrils, and the pages of long answers."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.tendril.status import read_reports
from harnesses.web.app_state import AppStateDep, ScopeDep, require_full
from harnesses.web.queries import first, in_place
from harnesses.web.rendering.charts import spark
from harnesses.web.rendering.text import answer_html, plain_lines
from harnesses.web.rendering.view import page
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN

SPARK_DAYS = 30
SPARK = (96, 24)  # width and height, as the template has them
_TEXT = ".txt"
router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_channels(request: Request, state: AppStateDep, scope: ScopeDep) -> Response:
    """List the channels, the most recently active first, with the newest line of each."""
    counts = await state.log.read(statistics.sparklines, scope, datetime.now(UTC), SPARK_DAYS)
    channels = []
    for each in await state.log.read(statistics.channels, scope):
        newest = await first(state.log, replace(in_place(scope, each.place), types=SPOKEN))
        channels.append((each, newest, spark(counts.get(each.place, ()), *SPARK)))
    return page(request, "channels.html", channels=channels)


@router.get("/tendrils", dependencies=[Depends(require_full)])
async def show_tendrils(request: Request, state: AppStateDep) -> Response:
    """List the tendrils with their state."""
    return page(request, "tendrils.html", tendrils=read_reports(state.data))


@router.get("/paste/{token}")
async def show_paste(request: Request, state: AppStateDep, token: str) -> Response:
    """Show a long answer of the IRC tendril in full, until it expires: as a page, or, with `.txt`
    after the token, as the text that the model wrote.

    People of the channel open it, who have no token of this site: the unguessable address is the
    permission, so `SecurityMiddleware` asks for no token. No page lists the addresses.
    """
    paste = await state.pastes.get(token.removesuffix(_TEXT))
    if paste and token.endswith(_TEXT):
        response = Response(plain_lines(paste.text), media_type="text/plain; charset=utf-8")
    else:
        html = answer_html(paste.text) if paste else None
        status = 200 if paste else 404
        response = page(request, "paste.html", status=status, paste=paste, html=html)
    response.headers["Cache-Control"] = "no-store"
    return response
