"""The pages of statistics, of all channels, one channel or one nick, and the calendar."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, HTTPException
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.web.log_access import LogAccess, LogAccessDep
from harnesses.web.pages.place import ChannelDep
from harnesses.web.rendering.charts import bars, shade, shift_timezone
from harnesses.web.rendering.timezones import UTC, ZoneDep, local_day
from harnesses.web.rendering.view import page
from storage.chat_log.event import SPOKEN, Place
from storage.chat_log.event_table import Query
from storage.chat_log.statistics import DayStats

_MAX_NICKS = 15  # nicks
_CHART_DAYS = 90  # in the bar chart
_RECENT_LINES = 25  # newest lines of a nick
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day of the calendar with its number of lines, and the shade for it."""

    day: date
    lines: int
    shade: int


@router.get("/stats")
async def show_all_stats(request: Request, log_access: LogAccessDep, zone: ZoneDep) -> Response:
    """Show statistics of all channels that the viewer may read."""
    return await _stats(request, log_access, None, zone)


@router.get("/stats/{network}/{name:path}")
async def show_stats(
    request: Request, log_access: LogAccessDep, place: ChannelDep, zone: ZoneDep
) -> Response:
    """Show statistics of a channel: lines over time, the nicks with the most, and answers."""
    return await _stats(request, log_access, place, zone)


@router.get("/calendar/{network}/{name:path}")
async def show_calendar(
    request: Request,
    log_access: LogAccessDep,
    place: ChannelDep,
    zone: ZoneDep,
    year: Annotated[int | None, Param(ge=1970, le=2199)] = None,
) -> Response:
    """Show a year of a channel: the days with lines as links, shaded by their number."""
    totals = await log_access.stats(log_access.query(place), 0)
    first, last = (local_day(end or datetime.now(UTC), zone) for end in (totals.first, totals.last))
    shown = year or last.year
    begin, end = (datetime(each, 1, 1, tzinfo=zone) for each in (shown, shown + 1))
    days = await log_access.days(replace(log_access.query(place), since=begin, until=end), zone)
    return page(
        request,
        "calendar.html",
        place=place,
        year=shown,
        years=range(first.year, last.year + 1),
        # Months before the first line and after the last one are left out.
        months=[
            month for month in _months(shown, days) if first.replace(day=1) <= month[0] <= last
        ],
        lines=sum(day.lines for day in days),
        weekdays=calendar.day_abbr,
    )


@router.get("/person/{nick:path}")
async def show_person(
    request: Request,
    log_access: LogAccessDep,
    zone: ZoneDep,
    nick: str,
) -> Response:
    """Show where and how much a nick spoke, and its newest lines."""
    person = await log_access.person(nick)
    if person is None:
        raise HTTPException(404, f"{nick} has said nothing that you may read.")
    query = Query(scope=log_access.scope, nick=nick, types=SPOKEN)
    recent, _ = await log_access.page(query, _RECENT_LINES)
    return page(
        request,
        "person.html",
        person=person,
        bars=bars(person.days, _CHART_DAYS, local_day(person.last, UTC)),
        recent=recent[::-1],
    )


async def _stats(
    request: Request, log_access: LogAccess, place: Place | None, zone: ZoneInfo
) -> Response:
    query = log_access.query(place)
    totals = await log_access.stats(query, _MAX_NICKS)
    last = local_day(totals.last or datetime.now(UTC), zone)
    days = await log_access.days(query, zone)
    heat = shift_timezone(await log_access.heat_map(query), zone, datetime.now(UTC))
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


def _months(
    year: int, days: Sequence[DayStats]
) -> list[tuple[date, list[list[CalendarDay | None]]]]:
    """Return (first day, weeks) of each month of a year; weeks begin on Monday, and have None for
    days of other months."""
    lines = {day.date: day.lines for day in days}
    most = max(lines.values(), default=0)
    months = []
    for month in range(1, 13):
        weeks = [
            [_cell(date(year, month, number), lines, most) if number else None for number in week]
            for week in calendar.Calendar().monthdayscalendar(year, month)
        ]
        months.append((date(year, month, 1), weeks))
    return months


def _cell(day: date, lines: dict[date, int], most: int) -> CalendarDay:
    count = lines.get(day, 0)
    return CalendarDay(day, count, shade(count, most))
