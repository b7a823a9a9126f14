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

    It includes the zone, also UTC, because the zone decides where the days begin: without it,
    whoever follows the link would see the days of the zone in their own cookie.
    """
    span = days if days > 1 else None
    return channel_path(place, page, day=day.isoformat(), days=span, tz=zone.key, **query)


def person_path(nick: str) -> str:
    """Return the address of the page about a nick."""
    return f"/person/{quote(nick, safe='')}"
