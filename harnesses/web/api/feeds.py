"""Feeds of a channel or of a search, in Atom (RFC 4287) and as JSON Feed 1.1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from xml.etree import ElementTree as Xml

from fastapi import APIRouter, Depends
from fastapi import Query as Param
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from harnesses.core.permalinks import permalink, with_query
from harnesses.web.app_state import AppStateDep
from harnesses.web.queries import MAX_QUERY_CHARS, ChannelQuery, Nick, page_of
from harnesses.web.rendering.text import plain_line, render_line, strip_formatting
from storage.chat_log.event import SPOKEN, Event
from storage.chat_log.event_table import until_now
from storage.search.models import Order, SearchQuery

ATOM = "http://www.w3.org/2005/Atom"
JSON_FEED = "https://jsonfeed.org/version/1.1"
_MAX_TITLE_CHARS = 80  # characters of an entry's title
# XML 1.0, section 2.2, forbids these and control characters, which `strip_formatting` removes.
_NOT_IN_XML = re.compile("[\ufffe\uffff]")
router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Feed:
    """The newest matching lines, newest first, with absolute URLs: of the `site`, of the page with
    the same lines (`home`) and of the feed itself (`address`)."""

    title: str
    home: str
    address: str
    site: str
    events: Sequence[Event]


async def _feed(
    request: Request,
    state: AppStateDep,
    query: ChannelQuery,
    nick: Nick = None,
    q: Annotated[str, Param(max_length=MAX_QUERY_CHARS)] = "",
    limit: Annotated[int, Param(ge=1, le=100)] = 50,
) -> Feed:
    site = (state.settings.public_url or str(request.base_url)).rstrip("/")
    asked = dict(request.query_params)
    channel = asked.get("channel", "")
    within = replace(query, nick=nick, types=SPOKEN, limit=limit)
    if q.strip():
        searched = SearchQuery(text=q, within=until_now(within), order=Order.TIME)
        events = [hit.event for hit in (await state.log.search(searched)).hits]
    else:
        events = (await page_of(state.log, within, limit))[0][::-1]
    # The feed contains its own URL, which people share: it must not disclose their token.
    asked.pop("token", None)
    return Feed(
        title=strip_formatting(
            " · ".join(part for part in (q, channel, nick, "Terrarium") if part)
        ),
        home=site + with_query("/search", q=q, channel=channel, nick=nick),
        address=site + with_query(request.scope["path"], **asked),
        site=site,
        events=events,
    )


FeedDep = Annotated[Feed, Depends(_feed)]


@router.get("/feed.atom")
async def show_atom(feed: FeedDep) -> Response:
    """Return the newest lines of a channel, a nick or a search, as Atom."""
    root = Xml.Element("feed", xmlns=ATOM)
    _add(root, "id", feed.address)
    _add(root, "title", feed.title)
    # Atom requires a time, also of a feed without entries.
    updated = feed.events[0].time if feed.events else datetime(1970, 1, 1, tzinfo=UTC)
    _add(root, "updated", updated.isoformat())
    Xml.SubElement(root, "link", rel="self", href=feed.address)
    Xml.SubElement(root, "link", rel="alternate", type="text/html", href=feed.home)
    for event in feed.events:
        entry = Xml.SubElement(root, "entry")
        _add(entry, "id", feed.site + permalink(event))
        _add(entry, "title", _title(event))
        _add(entry, "updated", event.time.isoformat())
        _add(_add(entry, "author"), "name", strip_formatting(event.nick))
        Xml.SubElement(entry, "link", rel="alternate", href=feed.site + permalink(event))
        _add(entry, "content", str(render_line(event.text))).set("type", "html")
    body = Xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return Response(body, media_type="application/atom+xml; charset=utf-8")


@router.get("/feed.json")
async def show_json(feed: FeedDep) -> Response:
    """Return the newest lines of a channel, a nick or a search, as JSON Feed."""
    items: list[dict[str, Any]] = [
        {
            "id": feed.site + permalink(event),
            "url": feed.site + permalink(event),
            "title": _title(event),
            "content_text": strip_formatting(event.text),
            "date_published": event.time.isoformat(),
            "authors": [{"name": strip_formatting(event.nick)}],
        }
        for event in feed.events
    ]
    body = {
        "version": JSON_FEED,
        "title": feed.title,
        "home_page_url": feed.home,
        "feed_url": feed.address,
        "items": items,
    }
    return JSONResponse(body, media_type="application/feed+json")


def _title(event: Event) -> str:
    line = plain_line(event)
    return line if len(line) <= _MAX_TITLE_CHARS else line[: _MAX_TITLE_CHARS - 1] + "…"


def _add(parent: Xml.Element, name: str, text: str = "") -> Xml.Element:
    child = Xml.SubElement(parent, name)
    child.text = _NOT_IN_XML.sub("", text)
    return child
