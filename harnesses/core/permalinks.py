"""Links to the pages of the web tendril."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from urllib.parse import quote, urlencode, urlsplit

from harnesses.core.addresses import table_settings
from harnesses.core.tendril.status import ProcessState, report
from storage.chat_log.event import Event, Place
from terrarium.config import Config
from terrarium.loopback import is_loopback


def channel_path(place: Place, page: str = "channel", /, **query: object) -> str:
    """Return the page of a channel, or another `page` about it; empty values of a query are left
    out."""
    path = f"/{page}/{quote(place.network, safe='')}/{quote(place.channel, safe='')}"
    return with_query(path, **query)


def with_query(path: str, /, **query: object) -> str:
    """Return a path with its query; empty values are left out."""
    wanted = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def permalink(event: Event) -> str:
    """Return the page that shows an event among its neighbours, whatever its age.

    It has channel, time and id, so that a reader, or another copy of the log, can find the line
    even where the id means nothing any more.
    """
    return f"{channel_path(Place(event.network, event.channel))}{event_url(event)}"


def short_link(event: Event) -> str:
    """Return a short address that leads to the permalink of an event, for lines of a chat."""
    return f"/line/{event.id}"


def event_url(event: Event) -> str:
    """Return the permalink of an event as it is written on a page of its channel."""
    time = f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"?at={event.id}&time={time}#e{event.id}"


def web_address(config: Config, servers: Iterable[str]) -> str | None:
    """Return the base URL of pages for people on the IRC `servers`, None while there is none.

    `[web] public_url` is where people reach the web tendril. Without it there is an address only
    where the IRC servers are on this machine, and so are those who read. Either way the web
    tendril has to run.
    """
    web = report(config.data, "web")
    if web is None or not web.is_fresh or web.state is not ProcessState.READY:
        return None
    base: str = table_settings(config, "web").get("public_url") or ""
    if not base and all(map(is_loopback, servers)):
        base = web.detail if is_loopback(urlsplit(web.detail).hostname or "") else ""
    return base.rstrip("/") or None
