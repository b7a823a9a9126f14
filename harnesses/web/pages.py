"""The pages over the log: channels, one channel with its live end, search, the tendrils."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException
from fastapi import Query as Param
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from harnesses.core.status import reports
from harnesses.web.api import neighbours, page_of
from harnesses.web.models import channel_path
from harnesses.web.params import Id, parse_channel
from harnesses.web.site import Site, TheSite
from harnesses.web.view import lines, page
from storage.chat_log import Query, match_all
from storage.event import PUBLIC, SPOKEN, Event, Place

LINES = 200
_FOUND = 50
router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_channels(request: Request, site: TheSite) -> Response:
    """The channels, the most recently active first, with the newest line of each."""
    channels = [(each, await _newest(site, each.place)) for each in await site.log.channels(PUBLIC)]
    return page(request, "channels.html", channels=channels)


@router.get("/tail/{network}/{name:path}", response_class=EventSourceResponse)
async def follow_channel(
    site: TheSite,
    network: str,
    name: str,
    request: Request,
    after_id: Id,
) -> AsyncIterator[ServerSentEvent]:
    """New lines of a channel as HTML, for the page that is already open."""
    returning = request.headers.get("last-event-id", "")
    start = int(returning) if returning.isdecimal() and len(returning) < 16 else after_id
    query = Query(scope=PUBLIC, network=network, channel=name, after_id=start)
    yield ServerSentEvent(id=str(start), retry=2000)
    async for event in site.tail.events(site.log, query):
        yield ServerSentEvent(id=str(event.id), data={"html": lines([event]), "day": _day(event)})


@router.get("/channel/{network}/{name:path}")
async def show_channel(
    request: Request,
    site: TheSite,
    network: str,
    name: str,
    at: Annotated[Id | None, Param(description="an event to show among its neighbours")] = None,
    before: Id | None = None,
    after: Id | None = None,
) -> Response:
    """The newest lines of a channel, or those around, before or after an event."""
    place = await _known(site, network, name)
    if place != Place(network, name):
        return RedirectResponse(channel_path(place), 307)
    found, older, newer = await _stretch(site, place, at, before, after)
    return page(
        request,
        "channel.html",
        place=place,
        events=found,
        older=older,
        newer=newer,
        at=at,
        lines=lines(found),
    )


@router.get("/search")
async def show_search(
    request: Request,
    site: TheSite,
    q: Annotated[str, Param(max_length=200)] = "",
    channel: Annotated[str, Param(max_length=300)] = "",
    nick: Annotated[str, Param(max_length=100)] = "",
    cursor: Id | None = None,
) -> Response:
    """Lines that have every word, the newest first."""
    asked = match_all(q) != '""'
    found, more = await _search(site, q, channel, nick, cursor) if asked else ([], False)
    return page(
        request,
        "search.html",
        q=q,
        channel=channel,
        nick=nick,
        asked=asked,
        found=found[::-1],
        further=_further(q, channel, nick, found[0].id) if more else None,
        channels=await site.log.channels(PUBLIC),
    )


@router.get("/tendrils")
async def show_tendrils(request: Request, site: TheSite) -> Response:
    """The processes that live on the one model, and how they are."""
    return page(request, "tendrils.html", tendrils=reports(site.data))


async def _known(site: Site, network: str, name: str) -> Place:
    """The channel as it is written in the log; its mark may be left out, its case be another."""
    for wanted in (name, f"#{name}"):
        query = Query(scope=PUBLIC, network=network, channel=wanted, limit=1)
        for event in await site.log.find(query):
            return Place(event.network, event.channel)
    raise HTTPException(404, f"Nothing has been logged of {name} on {network}.")


async def _newest(site: Site, place: Place) -> Event | None:
    query = Query(scope=PUBLIC, network=place.network, channel=place.channel, types=SPOKEN, limit=1)
    found = await site.log.find(query)
    return found[0] if found else None


async def _stretch(
    site: Site, place: Place, at: int | None, before: int | None, after: int | None
) -> tuple[list[Event], bool, bool]:
    """The events to show, and whether there are older and newer ones."""
    query = Query(
        scope=PUBLIC,
        network=place.network,
        channel=place.channel,
        before_id=before,
        after_id=after,
    )
    if at is not None:
        event = await site.log.get(PUBLIC, at)
        if event is None or Place(event.network, event.channel) != place:
            raise HTTPException(404, f"There is no line {at} on {place.channel}.")
        half = LINES // 2
        back, ahead = await neighbours(site, event, half, half)
        return [*back, event, *ahead], len(back) == half, len(ahead) == half
    if after is not None and before is None:
        found, more = await page_of(site, query, LINES, newest=False)
        return found, True, more
    found, more = await page_of(site, query, LINES)
    return found, more, before is not None


async def _search(
    site: Site, q: str, channel: str, nick: str, cursor: int | None
) -> tuple[list[Event], bool]:
    where = parse_channel(channel)
    query = Query(
        scope=PUBLIC,
        network=where.network,
        channel=where.channel,
        nick=nick or None,
        types=SPOKEN,
        before_id=cursor,
        text=q,
    )
    return await page_of(site, query, _FOUND)


def _further(q: str, channel: str, nick: str, cursor: int) -> str:
    """The query string of the next page of results."""
    return urlencode({"q": q, "channel": channel, "nick": nick, "cursor": cursor})


def _day(event: Event) -> str:
    return event.time.date().isoformat()
