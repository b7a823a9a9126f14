"""Feeds of a channel or of a search, in Atom (RFC 4287) and as JSON Feed 1.1."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any
from xml.etree import ElementTree as Xml

from fastapi import APIRouter, Request, Response
from fastapi import Query as Param
from starlette.responses import JSONResponse

from harnesses.core.addresses import permalink, with_query
from harnesses.web.app_state import AppStateDep
from harnesses.web.queries import MAX_QUERY_CHARS, ChannelQuery, Nick
from harnesses.web.rendering.text import plain_line, render_line, strip_formatting
from storage.chat_log.event import SPOKEN
from storage.chat_log.event_table import until_now
from storage.search.models import Order, SearchQuery

ATOM = "http://www.w3.org/2005/Atom"
JSON_FEED = "https://jsonfeed.org/version/1.1"
_MAX_TITLE = 80  # characters of an entry's title
# XML 1.0, section 2.2, forbids these and control characters, which `strip_formatting` removes.
_NOT_IN_XML = re.compile("[\ufffe\uffff]")
router = APIRouter(include_in_schema=False)


@router.get("/feed.atom")
@router.get("/feed.json")
async def show_feed(
    request: Request,
    state: AppStateDep,
    query: ChannelQuery,
    nick: Nick = None,
    q: Annotated[str, Param(max_length=MAX_QUERY_CHARS)] = "",
    limit: Annotated[int, Param(ge=1, le=100)] = 50,
) -> Response:
    """Return the newest lines of a channel, a nick or a search, newest first."""
    within = replace(query, nick=nick, types=SPOKEN, limit=limit)
    if q.strip():
        searched = SearchQuery(text=q, within=until_now(within), order=Order.TIME)
        events = [hit.event for hit in (await state.log.search(searched)).hits]
    else:
        events = (await state.log.find(within))[::-1]
    site, path = state.site_url(request), request.url.path
    # The feed contains its own URL, which people share: it must not disclose their token.
    asked = {key: value for key, value in request.query_params.items() if key != "token"}
    channel = asked.get("channel", "")
    feed: dict[str, Any] = {
        "version": JSON_FEED,
        "title": strip_formatting(
            " · ".join(part for part in (q, channel, nick, "Terrarium") if part)
        ),
        "home_page_url": site + with_query("/search", q=q, channel=channel, nick=nick),
        "feed_url": site + with_query(path, **asked),
        "items": [
            {
                "id": site + permalink(event),
                "url": site + permalink(event),
                "title": line if len(line) <= _MAX_TITLE else line[: _MAX_TITLE - 1] + "…",
                "content_html": str(render_line(event.text)),
                "content_text": strip_formatting(event.text),
                "date_published": event.time.isoformat(),
                "authors": [{"name": strip_formatting(event.nick)}],
            }
            for event, line in zip(events, map(plain_line, events), strict=True)
        ],
    }
    if path.endswith(".json"):
        return JSONResponse(feed, media_type="application/feed+json")
    return Response(_atom(feed), media_type="application/atom+xml; charset=utf-8")


def _atom(feed: dict[str, Any]) -> bytes:
    """Return a JSON Feed as Atom."""
    items = feed["items"]
    root = Xml.Element("feed", xmlns=ATOM)
    _add(root, "id", feed["feed_url"])
    _add(root, "title", feed["title"])
    # Atom requires a time, also of a feed without entries.
    _add(root, "updated", items[0]["date_published"] if items else "1970-01-01T00:00:00Z")
    Xml.SubElement(root, "link", rel="self", href=feed["feed_url"])
    Xml.SubElement(root, "link", rel="alternate", type="text/html", href=feed["home_page_url"])
    for item in items:
        entry = Xml.SubElement(root, "entry")
        _add(entry, "id", item["id"])
        _add(entry, "title", item["title"])
        _add(entry, "updated", item["date_published"])
        _add(_add(entry, "author"), "name", item["authors"][0]["name"])
        Xml.SubElement(entry, "link", rel="alternate", href=item["url"])
        _add(entry, "content", item["content_html"]).set("type", "html")
    return bytes(Xml.tostring(root, encoding="utf-8", xml_declaration=True))


def _add(parent: Xml.Element, name: str, text: str = "") -> Xml.Element:
    child = Xml.SubElement(parent, name)
    child.text = _NOT_IN_XML.sub("", text)
    return child
