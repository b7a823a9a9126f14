"""The addresses of pages."""

from __future__ import annotations

from datetime import UTC, date
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from storage.event import Event, Place


def channel_path(place: Place, page: str = "channel", /, **query: object) -> str:
    """The page of a channel, or another `page` about it; a query's empty values are left out."""
    path = f"/{page}/{quote(place.network, safe='')}/{quote(place.channel, safe='')}"
    return with_query(path, **query)


def with_query(path: str, /, **query: object) -> str:
    """A path with what it is asked; empty values are left out."""
    wanted = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(wanted)}" if wanted else path


def permalink(event: Event) -> str:
    """The page that shows an event among its neighbours, whatever its age.

    It has channel, time and id, so that a reader, or another copy of the log, can find the line
    even where the id means nothing any more.
    """
    return f"{channel_path(Place(event.network, event.channel))}{moment(event)}"


def moment(event: Event) -> str:
    """The permalink of an event as it is written on a page of its channel."""
    time = f"{event.time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"?at={event.id}&time={time}#e{event.id}"


def day_path(
    place: Place, day: date, zone: ZoneInfo, page: str = "channel", days: int = 1, **query: object
) -> str:
    """A day (or several) of a channel; which lines those are depends on the zone, so it is said."""
    span = days if days > 1 else None
    return channel_path(place, page, day=day.isoformat(), days=span, tz=zone_query(zone), **query)


def zone_query(zone: ZoneInfo) -> str | None:
    """What `tz` must be for this zone; UTC goes without saying."""
    return None if zone.key == "UTC" else zone.key


def person_path(nick: str) -> str:
    """The page about a nick."""
    return f"/person/{quote(nick, safe='')}"
