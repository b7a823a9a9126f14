"""The pages of one channel: its newest lines (live), a line with its neighbours, whole days."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from fastapi import Query as Param
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import RedirectResponse, StreamingResponse

from harnesses.core.addresses import channel_path, irc_networks, permalink
from harnesses.web.api.models import MAX_SAID_CHARS
from harnesses.web.app_state import AppStateDep, FollowDep, ScopeDep, ViewerDep
from harnesses.web.pages.runs import run_behind
from harnesses.web.queries import ChannelDep, Id, Moment, first, in_place, page_of
from harnesses.web.rendering.charts import Hour, hours
from harnesses.web.rendering.text import plain_line
from harnesses.web.rendering.timezones import (
    MAX_DAYS,
    Day,
    DayRange,
    ZoneDep,
    ZoneName,
    day_path,
    local_day,
)
from harnesses.web.rendering.view import lines, page
from storage.chat_log import statistics
from storage.chat_log.event import Event, Place
from storage.chat_log.event_table import Query
from storage.log import ChatLog

LINES_PER_PAGE = 200  # per page, except for whole days
MAX_DAY_LINES = 800  # per page of whole days
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The events of one page, in chronological order.

    `older` and `newer` are the addresses of the pages around it, None if there are none; a `live`
    page appends new lines by itself. For whole days, `previous_day` and `next_day` are the nearest
    days with lines, and a single one has its `hours`. `linked` is the event that the address names.
    """

    events: list[Event]
    older: str | None = None
    newer: str | None = None
    live: bool = False
    days: DayRange | None = None
    previous_day: date | None = None
    next_day: date | None = None
    hours: tuple[Hour, ...] = ()
    linked: Event | None = None


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query of a channel's page, which selects its lines; by default the newest."""

    at: Annotated[Id | None, Param(description="an event to show among its neighbours")] = None
    time: Annotated[Moment | None, Param(description="its time, should the id be unknown")] = None
    before: Id | None = None
    after: Id | None = None
    day: Day | None = None
    days: Annotated[int, Param(ge=1, le=MAX_DAYS)] = 1
    tz: ZoneName | None = None


@router.get("/channel/{network}/{name:path}")
async def show_channel(
    request: Request,
    state: AppStateDep,
    viewer: ViewerDep,
    place: ChannelDep,
    page_query: Annotated[PageQuery, Depends()],
    zone: ZoneDep,
) -> Response:
    """Show the newest lines of a channel, whole days, or the lines around, before or after an
    event; redirects to the spelling of the log."""
    named = request.path_params
    if place != Place(named["network"], named["name"]):
        return RedirectResponse(channel_path(place, **request.query_params), 307)
    query = in_place(viewer.scope, place)
    if page_query.day:
        days = DayRange(page_query.day, page_query.days, zone)
        log_slice = await _whole_days(state.log, query, place, days, page_query.after)
    elif page_query.at is not None:
        log_slice = await _around(state.log, query, place, page_query)
    else:
        before, after = page_query.before, page_query.after
        narrowed = replace(query, before_id=before, after_id=after)
        newest = after is None or before is not None
        events, more = await page_of(state.log, narrowed, LINES_PER_PAGE, newest=newest)
        older, newer = (more, before is not None) if newest else (True, more)
        log_slice = _with_links(place, events, page_query.tz, older=older, newer=newer)
    linked = log_slice.linked
    return page(
        request,
        "channel.html",
        place=place,
        run=await run_behind(state, viewer, linked) if linked else None,
        log_slice=log_slice,
        tail=channel_path(place, "tail", tz=zone.key),
        lines=lines(log_slice.events, zone),
        max_days=MAX_DAYS,
        max_said=MAX_SAID_CHARS,
        may_say=viewer.may_say and place.network in irc_networks(state.tendril.config),
    )


@router.get("/line/{event_id}")
async def find_line(state: AppStateDep, scope: ScopeDep, event_id: Id) -> Response:
    """Redirect the short address of a line to its permalink; 404 if it is out of scope."""
    event = await state.log.get(scope, event_id)
    if event is None:
        raise HTTPException(404, f"There is no line {event_id}.")
    return RedirectResponse(permalink(event), 307)


@router.get("/tail/{network}/{name:path}", response_class=EventSourceResponse)
async def follow_channel(
    scope: ScopeDep,
    follow: FollowDep,
    place: ChannelDep,
    after_id: Id,
    zone: ZoneDep,
    last_event_id: Annotated[Id | None, Header()] = None,  # of a browser that reconnects
) -> AsyncIterator[ServerSentEvent]:
    """Stream new lines of a channel as HTML (Server-Sent Events), for an open page."""
    start = after_id if last_event_id is None else last_event_id
    yield ServerSentEvent(id=str(start), retry=2000)
    async for event in follow(replace(in_place(scope, place), after_id=start)):
        day = local_day(event.time, zone).isoformat()
        html = lines([event], zone)
        yield ServerSentEvent(id=str(event.id), data={"html": html, "day": day})


@router.get("/text/{network}/{name:path}")
async def show_text(
    state: AppStateDep,
    scope: ScopeDep,
    place: ChannelDep,
    zone: ZoneDep,
    day: Day,
    days: Annotated[int, Param(ge=1, le=MAX_DAYS)] = 1,
) -> Response:
    """Stream whole days as plain text, without a limit."""
    span = DayRange(day, days, zone)
    query = replace(in_place(scope, place), since=span.since, until=span.until)

    async def stream_lines() -> AsyncIterator[bytes]:
        yield f"# {place.channel} on {place.network}, {span.title}, times are {zone.key}\n".encode()
        shown = None
        async for events in state.log.pieces(query):
            for event in events:
                time = event.time.astimezone(zone)
                if span.count > 1 and time.date() != shown:
                    shown = time.date()
                    yield f"\n# {shown.isoformat()}\n".encode()
                yield f"[{time:%H:%M:%S}] {plain_line(event)}\n".encode()

    return StreamingResponse(stream_lines(), media_type="text/plain; charset=utf-8")


async def _whole_days(
    log: ChatLog, query: Query, place: Place, days: DayRange, after: int | None
) -> LogSlice:
    shown = replace(query, since=days.since, until=days.until, after_id=after)
    events, more = await page_of(log, shown, MAX_DAY_LINES, newest=False)
    before = await first(log, replace(query, until=days.since))
    following = await first(log, replace(query, since=days.until), newest=False)

    def again(after: int | None) -> str:
        return day_path(place, days.first, days.zone, days=days.count, after=after)

    firsts: dict[datetime, int] = {}
    for event in events:
        firsts.setdefault(event.time.replace(minute=0, second=0, microsecond=0), event.id)

    def address(hour: datetime) -> str:
        # On another page of the day. An id is its event's time in milliseconds, or a little more.
        return f"#e{firsts[hour]}" if hour in firsts else again(int(hour.timestamp() * 1000) - 1)

    return LogSlice(
        events,
        older=again(None) if after is not None else None,
        newer=again(events[-1].id) if more else None,
        live=not more and following is None and days.is_open,
        days=days,
        previous_day=local_day(before.time, days.zone) if before else None,
        next_day=local_day(following.time, days.zone) if following else None,
        hours=hours(await log.read(statistics.hours, shown), days, address),
    )


async def _around(log: ChatLog, query: Query, place: Place, page_query: PageQuery) -> LogSlice:
    assert page_query.at is not None
    event = await log.get(query.scope, page_query.at)
    # Permalinks outlive ids: in another copy of the log the id is unknown or that of another line,
    # and the time finds it.
    if event is None or Place(event.network, event.channel) != place:
        since = page_query.time
        event = await first(log, replace(query, since=since), newest=False) if since else None
    half = LINES_PER_PAGE // 2
    around = await log.context(query.scope, event.id, before=half, after=half) if event else None
    if around is None:  # there was no event, or it has just been erased
        raise HTTPException(404, f"There is no line {page_query.at} on {place.channel}.")
    found = _with_links(
        place,
        [*around.before, around.event, *around.after],
        page_query.tz,
        older=len(around.before) == half,
        newer=len(around.after) == half,
    )
    return replace(found, linked=around.event)


def _with_links(
    place: Place, events: list[Event], tz: str | None, *, older: bool, newer: bool
) -> LogSlice:
    """Return a slice with the addresses of the pages around it; without a newer one it is live."""
    return LogSlice(
        events,
        older=channel_path(place, before=events[0].id, tz=tz) if older and events else None,
        newer=channel_path(place, after=events[-1].id, tz=tz) if newer and events else None,
        live=not newer,
    )
