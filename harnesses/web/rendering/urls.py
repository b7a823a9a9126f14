"""Addresses of pages."""

from __future__ import annotations

from datetime import date
from urllib.parse import quote
from zoneinfo import ZoneInfo

from harnesses.core.permalinks import channel_path
from storage.chat_log.event import Place


def day_path(
    place: Place, day: date, zone: ZoneInfo, page: str = "channel", days: int = 1, **query: object
) -> str:
    """Return the address of a channel's `page` for `days` days from `day` on.

    It includes the zone, unless that is UTC, because the zone decides where the days begin.
    """
    span = days if days > 1 else None
    return channel_path(place, page, day=day.isoformat(), days=span, tz=zone_query(zone), **query)


def zone_query(zone: ZoneInfo) -> str | None:
    """Return the value of the query parameter `tz` for a zone; None for UTC, the default."""
    return None if zone.key == "UTC" else zone.key


def person_path(nick: str) -> str:
    """Return the address of the page about a nick."""
    return f"/person/{quote(nick, safe='')}"
