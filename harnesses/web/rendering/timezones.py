"""The time zone of the pages, which a cookie stores, and calendar days in a zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from fastapi import Depends, Query, Request
from pydantic import AfterValidator, Field

from harnesses.core.addresses import channel_path
from storage.chat_log.event import Place

COOKIE = "terrarium_zone"
DEVICE_COOKIE = "terrarium_device_zone"
"""The zone of the device, which site.js stores as long as nobody has chosen one."""

UTC = ZoneInfo("UTC")
MAX_DAYS = 7  # per page
# In every zone, the first day begins after 1970-01-01T00:00Z, where the ids of events begin.
_FIRST_DAY, _LAST_DAY = date(1970, 1, 2), date(2199, 12, 31)


@cache
def zone_names() -> frozenset[str]:
    """Return the IANA names of all zones that this system knows, for example Europe/Vienna."""
    # "localtime" is a link to this machine's own zone on some systems, no IANA name.
    return frozenset(available_timezones() | {"UTC"}) - {"localtime"}


def _require_zone(name: str) -> str:
    if name not in zone_names():
        raise ValueError("is not a time zone; write an IANA name such as Europe/Vienna")
    return name


ZoneName = Annotated[str, AfterValidator(_require_zone), Field(max_length=100)]


def zone_of(
    request: Request,
    tz: Annotated[ZoneName | None, Query(description="IANA name of a time zone")] = None,
) -> ZoneInfo:
    """Return the zone in the query (`tz`, which FastAPI validates), else the chosen one, else that
    of the device, else UTC; unknown names are ignored."""
    cookies = request.cookies
    for name in (request.query_params.get("tz"), cookies.get(COOKIE), cookies.get(DEVICE_COOKIE)):
        if name and name in zone_names():
            return ZoneInfo(name)
    return UTC


ZoneDep = Annotated[ZoneInfo, Depends(zone_of)]
Day = Annotated[date, Field(ge=_FIRST_DAY, le=_LAST_DAY)]


@dataclass(frozen=True, slots=True)
class DayRange:
    """Consecutive days in a time zone."""

    first: date
    count: int
    zone: ZoneInfo

    @property
    def since(self) -> datetime:
        """The beginning of the first day."""
        return datetime.combine(self.first, time(), self.zone)

    @property
    def until(self) -> datetime:
        """The end of the last day, exclusive."""
        # By the calendar, as a day has 23 or 25 hours when daylight saving time begins or ends.
        return datetime.combine(self.first + timedelta(days=self.count), time(), self.zone)

    @property
    def is_open(self) -> bool:
        """True while new lines may still fall into the range."""
        return datetime.now(self.zone) < self.until

    @property
    def title(self) -> str:
        """The range in words."""
        if self.count == 1:
            return in_words(self.first)
        return f"{short(self.first)} – {short(self.first + timedelta(days=self.count - 1))}"


def in_words(day: date) -> str:
    """Return a date such as "Monday, 15 November 2004"."""
    return f"{day:%A}, {day.day} {day:%B} {day.year}"


def short(day: date) -> str:
    """Return a date such as "15 Nov 2004"."""
    return f"{day.day} {day:%b} {day.year}"


def local_day(moment: datetime, zone: ZoneInfo) -> date:
    """Return the date of a moment in a zone."""
    return moment.astimezone(zone).date()


def day_path(
    place: Place, day: date, zone: ZoneInfo, page: str = "channel", days: int = 1, **query: object
) -> str:
    """Return the address of a channel's `page` for `days` days from `day` on.

    It includes the zone, also UTC, because the zone decides where the days begin: without it,
    whoever follows the link would see the days of the zone in their own cookie.
    """
    span = days if days > 1 else None
    return channel_path(place, page, day=day.isoformat(), days=span, tz=zone.key, **query)
