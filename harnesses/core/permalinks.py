"""URLs of the pages of the web tendril."""

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
    """Return the path of a channel's page, or of another `page` about the channel, with a query
    string. Parameters that are None or "" are left out."""
    path = f"/{page}/{quote(place.network, safe='')}/{quote(place.channel, safe='')}"
    return with_query(path, **query)


def with_query(path: str, /, **query: object) -> str:
    """Return a path with a query string; parameters that are None or "" are left out."""
    wanted = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def permalink(event: Event) -> str:
    """Return the path of the page that shows an event in its context.

    It includes channel, time and id, so that a reader can find the line even in another copy of the
    log, where the id may belong to another event.
    """
    return f"{channel_path(Place(event.network, event.channel))}{event_url(event)}"


def short_link(event: Event) -> str:
    """Return a short path that redirects to the permalink of an event, for use in chat lines."""
    return f"/line/{event.id}"


def event_url(event: Event) -> str:
    """Return the permalink of an event relative to the page of its channel."""
    time = f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"?at={event.id}&time={time}#e{event.id}"


def web_address(config: Config, servers: Iterable[str]) -> str | None:
    """Return the base URL of the web pages for people on the IRC `servers`, None if there is none.

    It is `[web] public_url` or, without that, the loopback address of the web tendril, if all
    `servers` are on this machine: their users are then assumed to be on it too. None while the web
    tendril is not running.
    """
    web = report(config.data, "web")
    if web is None or not web.is_fresh or web.state is not ProcessState.READY:
        return None
    base: str = table_settings(config, "web").get("public_url") or ""
    if not base and all(map(is_loopback, servers)):
        base = web.detail if is_loopback(urlsplit(web.detail).hostname or "") else ""
    return base.rstrip("/") or None
