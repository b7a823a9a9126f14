"""The pages over the whole log: channels, search; and the tendrils."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import Response

from harnesses.core.status import reports
from harnesses.web.params import Id, parse_channel
from harnesses.web.reader import Reader, TheReader
from harnesses.web.site import TheSite, require_full
from harnesses.web.view import page
from storage.chat_log import Query, match_all
from storage.event import SPOKEN, Event

LINES = 200
_FOUND = 50
router = APIRouter(include_in_schema=False)


@router.get("/")
async def show_channels(request: Request, reader: TheReader) -> Response:
    """The channels, the most recently active first, with the newest line of each."""
    channels = [(each, await reader.last(each.place)) for each in await reader.channels()]
    return page(request, "channels.html", channels=channels)


@router.get("/search")
async def show_search(
    request: Request,
    reader: TheReader,
    q: Annotated[str, Param(max_length=200)] = "",
    channel: Annotated[str, Param(max_length=300)] = "",
    nick: Annotated[str, Param(max_length=100)] = "",
    cursor: Id | None = None,
) -> Response:
    """Lines that have every word, the newest first."""
    asked = match_all(q) != '""'
    found, more = await _search(reader, q, channel, nick, cursor) if asked else ([], False)
    return page(
        request,
        "search.html",
        q=q,
        channel=channel,
        nick=nick,
        asked=asked,
        found=found[::-1],
        further=_further(q, channel, nick, found[0].id) if more else None,
        channels=await reader.channels(),
    )


@router.get("/tendrils", dependencies=[Depends(require_full)])
async def show_tendrils(request: Request, site: TheSite) -> Response:
    """The processes that live on the one model, and how they are."""
    return page(request, "tendrils.html", tendrils=reports(site.data))


async def _search(
    reader: Reader, q: str, channel: str, nick: str, cursor: int | None
) -> tuple[list[Event], bool]:
    where = parse_channel(channel)
    query = Query(
        scope=reader.scope,
        network=where.network,
        channel=where.channel,
        nick=nick or None,
        types=SPOKEN,
        before_id=cursor,
        text=q,
    )
    return await reader.page(query, _FOUND)


def _further(q: str, channel: str, nick: str, cursor: int) -> str:
    """The query string of the next page of results."""
    return urlencode({"q": q, "channel": channel, "nick": nick, "cursor": cursor})
