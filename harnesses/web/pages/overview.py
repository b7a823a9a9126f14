"""The overview pages: all channels, and all tendrils."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.tendril.status import reports
from harnesses.web.app_state import AppStateDep, require_full
from harnesses.web.log_access import LogAccessDep
from harnesses.web.rendering.charts import spark
from harnesses.web.rendering.view import page

SPARK_DAYS = 30
SPARK = (96, 24)  # width and height, as the template has them
router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_channels(request: Request, log_access: LogAccessDep) -> Response:
    """List the channels, the most recently active first, with the newest line of each."""
    lines = await log_access.sparklines(SPARK_DAYS)
    channels = [
        (each, await log_access.last(each.place), spark(lines.get(each.place, ()), *SPARK))
        for each in await log_access.channels()
    ]
    return page(request, "channels.html", channels=channels)


@router.get("/tendrils", dependencies=[Depends(require_full)])
async def show_tendrils(request: Request, state: AppStateDep) -> Response:
    """List the tendrils with their state."""
    return page(request, "tendrils.html", tendrils=reports(state.data))
