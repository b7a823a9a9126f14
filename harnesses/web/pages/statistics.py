"""The pages of statistics, of all channels, one channel or one nick, and the calendar."""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.app_state import AppStateDep, ScopeDep
from harnesses.web.queries import ChannelDep, in_place
from harnesses.web.rendering.charts import bars, shade, shift_timezone
from harnesses.web.rendering.timezones import UTC, ZoneDep, local_day
from harnesses.web.rendering.view import page
from storage.chat_log import statistics
from storage.chat_log.event import SPOKEN, Place
from storage.chat_log.event_table import Query
from storage.log import ChatLog

_MAX_NICKS = 15  # nicks
_CHART_DAYS = 90  # in the bar chart
_RECENT_LINES = 25  # newest lines of a nick
router = APIRouter(include_in_schema=False)


@router.get("/stats")
async def show_all_stats(
    request: Request, state: AppStateDep, scope: ScopeDep, zone: ZoneDep
) -> Response:
    """Show statistics of all channels that the viewer may read."""
    return await _stats(request, state.log, Query(scope=scope), None, zone)


@router.get("/stats/{network}/{name:path}")
async def show_stats(
    request: Request, state: AppStateDep, scope: ScopeDep, place: ChannelDep, zone: ZoneDep
) -> Response:
    """Show statistics of a channel: lines over time, the nicks with the most, and answers."""
    return await _stats(request, state.log, in_place(scope, place), place, zone)


@router.get("/calendar/{network}/{name:path}")
async def show_calendar(
    request: Request,
    state: AppStateDep,
    scope: ScopeDep,
    place: ChannelDep,
    zone: ZoneDep,
    year: Annotated[int | None, Param(ge=1970, le=2199)] = None,
) -> Response:
    """Show a year of a channel: the days with lines as links, shaded by their number."""
    query = in_place(scope, place)
    totals = await state.log.read(statistics.stats, query, 0)
    first, last = (local_day(end or datetime.now(UTC), zone) for end in (totals.first, totals.last))
    shown = year or last.year
    begin, end = (datetime(each, 1, 1, tzinfo=zone) for each in (shown, shown + 1))
    days = await state.log.read(statistics.days, replace(query, since=begin, until=end), zone)
    lines = {day.date: day.lines for day in days}
    most = max(lines.values(), default=0)
    # Weeks begin on Monday. Months before the first line and after the last one are left out.
    months = [
        (month, calendar.Calendar().monthdatescalendar(shown, month.month))
        for month in (date(shown, number, 1) for number in range(1, 13))
        if first.replace(day=1) <= month <= last
    ]
    return page(
        request,
        "calendar.html",
        place=place,
        year=shown,
        years=range(first.year, last.year + 1),
        months=months,
        lines=lines,
        shades={day: shade(count, most) for day, count in lines.items()},
        weekdays=calendar.day_abbr,
    )


@router.get("/person/{nick:path}")
async def show_person(request: Request, state: AppStateDep, scope: ScopeDep, nick: str) -> Response:
    """Show where and how much a nick spoke, and its newest lines."""
    person = await state.log.read(statistics.person, scope, nick)
    if person is None:
        raise HTTPException(404, f"{nick} has said nothing that you may read.")
    query = Query(scope=scope, nick=nick, types=SPOKEN, limit=_RECENT_LINES)
    recent = await state.log.find(query)
    return page(
        request,
        "person.html",
        person=person,
        bars=bars(person.days, _CHART_DAYS, local_day(person.last, UTC)),
        recent=recent[::-1],
    )


async def _stats(
    request: Request, log: ChatLog, query: Query, place: Place | None, zone: ZoneInfo
) -> Response:
    totals = await log.read(statistics.stats, query, _MAX_NICKS)
    last = local_day(totals.last or datetime.now(UTC), zone)
    days = await log.read(statistics.days, query, zone)
    heat = shift_timezone(await log.read(statistics.heat_map, query), zone, datetime.now(UTC))
    most = max(max(row) for row in heat)
    return page(
        request,
        "stats.html",
        place=place,
        totals=totals,
        days_with_lines=len(days),
        bars=bars(days, _CHART_DAYS, last),
        heat=[[(count, shade(count, most)) for count in row] for row in heat],
        weekdays=calendar.day_abbr,
    )
