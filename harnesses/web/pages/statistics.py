"""The pages of statistics, of all channels, one channel or one nick, the calendar, and the tool by
which the model tells statistics."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi import Query as Param
from pydantic import Field

from harnesses.core.text import counted
from harnesses.web.app_state import AppStateDep, ScopeDep
from harnesses.web.queries import ChannelDep, in_place
from harnesses.web.rendering.charts import BarChart, shade, shift_timezone
from harnesses.web.rendering.timezones import UTC, ZoneDep, local_day, zone_of
from harnesses.web.rendering.view import page
from llm.messages.message import escape_tags
from llm.tools.toolbox import tool
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import SPOKEN, Place, Scope
from storage.chat_log.opt_outs import person_of, rules
from storage.log import ChatLog, Query

_MAX_NICKS = 40  # nicks that are read, of which people and bots are told apart
_MAX_SHOWN = 15  # people
_RECENT_LINES = 25  # newest lines of a nick
_TOLD_PEOPLE = 10  # by the tool
_TOLD_HOURS = 3  # of the day, in which most is said
router = APIRouter(include_in_schema=False)
_BOT = re.compile(r"^ubot|(bot|serv)[_`^0-9|-]*$", re.IGNORECASE)  # such as ubottu, chanserv
Year = Annotated[int | None, Param(ge=1970, le=2199)]


@router.get("/stats")
async def show_all_stats(
    request: Request, state: AppStateDep, scope: ScopeDep, year: Year = None
) -> Response:
    """Show statistics of all channels that the viewer may read."""
    return await _stats(request, state.log, Query(scope=scope), None, year)


@router.get("/stats/{network}/{name:path}")
async def show_stats(
    request: Request, state: AppStateDep, scope: ScopeDep, place: ChannelDep, year: Year = None
) -> Response:
    """Show statistics of a channel: lines over time, the nicks with the most, and answers."""
    return await _stats(request, state.log, in_place(scope, place), place, year)


@router.get("/calendar/{network}/{name:path}")
async def show_calendar(
    request: Request,
    state: AppStateDep,
    scope: ScopeDep,
    place: ChannelDep,
    zone: ZoneDep,
    year: Year = None,
) -> Response:
    """Show a year of a channel: the days with lines as links, shaded by their number."""
    query = in_place(scope, place)
    totals = await state.log.read(statistics.stats, query, 0)
    first, last = (local_day(end or datetime.now(UTC), zone) for end in (totals.first, totals.last))
    shown = year or last.year
    begin, end = (datetime(each, 1, 1, tzinfo=zone) for each in (shown, shown + 1))
    days = await state.log.read(statistics.days, replace(query, since=begin, until=end), zone)
    lines = {day.date: day.lines for day in days}
    most, by_month = max(lines.values(), default=0), Counter[int]()
    for day, count in lines.items():
        by_month[day.month] += count
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
        totals=by_month,
        shades={day: shade(count, most) for day, count in lines.items()},
        weekdays=calendar.day_abbr,
    )


@router.get("/person/{nick:path}")
async def show_person(
    request: Request,
    state: AppStateDep,
    scope: ScopeDep,
    nick: str,
    network: Annotated[str | None, Param(max_length=100)] = None,
) -> Response:
    """Show where and how much a nick spoke, and its newest lines, on one network: by default on the
    one where it spoke most, as elsewhere it may be somebody else's."""
    everywhere = await state.log.read(statistics.person, scope, nick)
    networks = [place.network for place, _ in everywhere.places] if everywhere else []
    chosen = network if network in networks else next(iter(networks), None)
    person = await state.log.read(statistics.person, scope, nick, chosen)
    if person is None:
        raise HTTPException(404, f"{nick} has said nothing that you may read.")
    query = Query(scope=scope, network=chosen, nick=nick, types=SPOKEN, limit=_RECENT_LINES)
    recent = await state.log.find(query)
    days = [local_day(each, UTC) for each in (person.first, person.last)]
    return page(
        request,
        "person.html",
        person=person,
        network=chosen,
        networks=sorted(set(networks)),
        chart=BarChart.from_days(person.days, *days),
        recent=recent[::-1],
    )


async def _stats(
    request: Request, log: ChatLog, query: Query, place: Place | None, year: int | None
) -> Response:
    zone = zone_of(request)
    totals = await log.read(statistics.stats, query, _MAX_NICKS)
    ours = await log.read(statistics.own_nicks, query)
    bots = {nick for nick, _ in totals.top if nick in ours or _BOT.search(nick)}
    first, last = (local_day(end or datetime.now(UTC), zone) for end in (totals.first, totals.last))
    days = await log.read(statistics.days, query, zone)
    heat = shift_timezone(await log.read(statistics.heat_map, query), zone, datetime.now(UTC))
    most = max(max(row) for row in heat)
    span = (date(year, 1, 1), date(year, 12, 31)) if year else (first, last)
    return page(
        request,
        "stats.html",
        place=place,
        totals=totals,
        bots=[each for each in totals.top if each[0] in bots],
        people=[each for each in totals.top if each[0] not in bots][:_MAX_SHOWN],
        days_with_lines=len(days),
        chart=BarChart.from_days(days, *span),
        year=year,
        years=range(first.year, last.year + 1),
        heat=[[(count, shade(count, most)) for count in row] for row in heat],
        weekdays=calendar.day_abbr,
    )


@dataclass(frozen=True, slots=True)
class StatisticsTools:
    """The tool over the part of a `log` that `scope` covers."""

    log: ChatLog
    scope: Scope

    @tool(reads=True)
    async def statistics(
        self,
        channel: Annotated[str, Field(max_length=200, description="only this channel")] = "",
        days: Annotated[int, Field(ge=0, le=36_500, description="only the last; 0: all")] = 0,
    ) -> str:
        """Tell how much was said on the channels that the person who asks may read, by whom most,
        and at which hours."""
        query = Query(scope=self.scope).in_channel(ChannelName.parse(channel))
        if days:
            query = replace(query, since=datetime.now(UTC) - timedelta(days=days))
        found = await self.log.read(statistics.stats, query, _TOLD_PEOPLE)
        if not found.lines or not found.first or not found.last:
            return "nothing was said there"
        # The counters know no opt-outs.
        gone = {nick for _, nick in (await self.log.read(rules)).nicks}
        people = (
            f"{escape_tags(nick)} {lines:,}"
            for nick, lines in found.top
            if person_of(nick) not in gone
        )
        told = [
            f"{counted(found.lines, 'line')} by {counted(found.people, 'nick')},"
            f" {found.first:%Y-%m-%d} to {found.last:%Y-%m-%d}",
            f"most by: {', '.join(people)}",
        ]
        if not days:  # the hours are counted for all time
            week = await self.log.read(statistics.heat_map, query)
            hours = [sum(day[hour] for day in week) for hour in range(24)]
            best = sorted(range(24), key=lambda hour: -hours[hour])[:_TOLD_HOURS]
            told.append(f"most at (UTC): {', '.join(f'{hour:02}:00' for hour in best)}")
        return "\n".join(told)
