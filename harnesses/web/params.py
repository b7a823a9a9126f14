"""Request parameters that several endpoints share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import AwareDatetime, BeforeValidator, Field

from storage.chat_log.channel_name import ChannelName

_MAX_ID = 2**53 - 1  # JavaScript's largest safe integer
MAX_QUERY_CHARS = 200  # characters of a search
_LOST_PLUS = re.compile(r"(T\d\d:\d\d(?::\d\d(?:\.\d+)?)?) (\d\d:?\d\d)$")


def _moment(value: Any) -> Any:
    """Read a bare date as its midnight in UTC, and restore a `+` before an offset, which URL
    decoding has turned into a space."""
    if not isinstance(value, str):
        return value
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return _LOST_PLUS.sub(r"\1+\2", value)
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
Id = Annotated[int, Field(ge=0, le=_MAX_ID)]
Limit = Annotated[int, Query(ge=1, le=500, description="maximum number of results")]
Nick = Annotated[str | None, Query(max_length=100, description="only this nick", examples=["ada"])]


def _channel_name(
    channel: Annotated[
        str | None,
        Query(
            max_length=300,
            description="`#chan` or `network/#chan`; in a URL write # as %23",
            examples=["irc/#terrarium"],
        ),
    ] = None,
) -> ChannelName | None:
    return ChannelName.parse(channel)


ChannelNameDep = Annotated[ChannelName | None, Depends(_channel_name)]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A half-open range of time: from `since`, inclusive, to `until`, exclusive; None is
    unbounded."""

    since: datetime | None = None
    until: datetime | None = None


def _time_range(
    since: Annotated[
        Moment | None,
        Query(
            description="from this time on: ISO 8601 with a time zone, or a date",
            examples=["2026-03-01T12:00:00Z"],
        ),
    ] = None,
    until: Annotated[
        Moment | None,
        Query(description="before this time: ISO 8601 with a time zone, or a date"),
    ] = None,
) -> TimeRange:
    return TimeRange(since, until)


TimeRangeDep = Annotated[TimeRange, Depends(_time_range)]


def _recent_range(
    period: TimeRangeDep,
    hours: Annotated[
        float | None, Query(gt=0, le=24 * 366 * 100, description="only the last hours")
    ] = None,
) -> TimeRange:
    """Return the range that begins at `since` or `hours` ago, whichever is later."""
    if hours is None:
        return period
    ago = datetime.now(UTC) - timedelta(hours=hours)
    return TimeRange(max(ago, period.since) if period.since else ago, period.until)


RecentRangeDep = Annotated[TimeRange, Depends(_recent_range)]
