"""URLs of the pages of the web tendril."""

from __future__ import annotations

from datetime import UTC
from urllib.parse import quote, urlencode

from storage.chat_log.event import Event, Place


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
    return f"{channel_path(Place(event.network, event.channel))}{relative_permalink(event)}"


def short_link(event: Event) -> str:
    """Return a short path that redirects to the permalink of an event, for use in chat lines."""
    return f"/line/{event.id}"


def relative_permalink(event: Event) -> str:
    """Return the permalink of an event relative to the page of its channel."""
    time = f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"?at={event.id}&time={time}#e{event.id}"
