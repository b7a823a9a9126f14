"""Layout of charts: plain numbers, which the templates turn into SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from harnesses.web.rendering.timezones import DayRange, short
from storage.chat_log.statistics import DayStats, HeatMap

LEVELS = 5  # shades, including the one for no lines
_HOURS_OF_WEEK = 168
_MAX_DAY_BARS = 366  # more days are drawn by month


@dataclass(frozen=True, slots=True)
class Bar:
    """A day or a month of a bar chart: all lines, and the answers among them, with heights from 0
    to 100."""

    label: str
    lines: int
    replies: int
    height: float
    reply_height: float


@dataclass(frozen=True, slots=True)
class BarChart:
    """The bars from the first to the last day, including silent ones, oldest first. A bar is a
    `unit`, "day" or "month"; `most` are the lines of the highest."""

    unit: str
    bars: Sequence[Bar]
    most: int

    @classmethod
    def from_days(cls, days: Iterable[DayStats], first: date, last: date) -> BarChart:
        """Lay out the days from `first` to `last`, by month if they are too many."""
        span = (last - first).days + 1
        by_month = span > _MAX_DAY_BARS
        counts: dict[str, list[int]] = {}  # in order
        for number in range(span):
            counts.setdefault(_label(first + timedelta(days=number), by_month), [0, 0])
        for day in days:
            if first <= day.date <= last:
                count = counts[_label(day.date, by_month)]
                count[0], count[1] = count[0] + day.lines, count[1] + day.replies
        most = max((lines for lines, _ in counts.values()), default=0)
        bars = [
            Bar(label, lines, replies, 100 * lines / (most or 1), 100 * replies / (most or 1))
            for label, (lines, replies) in counts.items()
        ]
        return cls("month" if by_month else "day", bars, most)


def _label(day: date, by_month: bool) -> str:
    return f"{day:%b %Y}" if by_month else short(day)


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of a day with its number of lines, the shade of it, and the address of the first
    one."""

    label: str
    lines: int
    shade: int
    address: str


def hours(
    counts: Mapping[datetime, int], days: DayRange, address: Callable[[datetime], str]
) -> tuple[Hour, ...]:
    """Return the hours of a single day, none of several; `counts` and `address` take their
    beginnings in UTC."""
    begin = days.since.astimezone(UTC).replace(minute=0)
    found = [begin + timedelta(hours=number) for number in range(25 if days.count == 1 else 0)]
    most = max(counts.values(), default=0)
    return tuple(
        Hour(
            f"{hour.astimezone(days.zone):%H:%M}",
            counts.get(hour, 0),
            shade(counts.get(hour, 0), most),
            address(hour),
        )
        for hour in found
        if hour < days.until
    )


def shade(count: int, most: int) -> int:
    """Return the shade of a count: 0 for none, else 1 to `LEVELS` - 1 for `most`.

    It grows with the square root, so that small counts can be distinguished.
    """
    if not count or not most:
        return 0
    return max(1, math.ceil((LEVELS - 1) * math.sqrt(count / most)))


def shift_timezone(heat: HeatMap, zone: ZoneInfo, now: datetime) -> HeatMap:
    """Return a heat map in UTC shifted to a zone, by the offset at `now` in whole hours.

    This is approximate for other offsets, and for lines from the other half of the year.
    """
    offset = now.astimezone(zone).utcoffset() or timedelta()
    # Half an hour is rounded up everywhere; `round` would round it to the even hour.
    hours = math.floor(offset / timedelta(hours=1) + 0.5)
    flat = [count for row in heat for count in row]
    moved = [flat[(slot - hours) % _HOURS_OF_WEEK] for slot in range(_HOURS_OF_WEEK)]
    return tuple(tuple(moved[day * 24 : day * 24 + 24]) for day in range(7))


def spark(counts: Sequence[float], width: int, height: int) -> str:
    """Return the points of a sparkline for `<polyline>`, "" if all counts are 0."""
    most = max(counts, default=0)
    if not most or len(counts) < 2:
        return ""
    step = width / (len(counts) - 1)
    points = (
        f"{number * step:.1f},{height - 1 - (height - 2) * count / most:.1f}"
        for number, count in enumerate(counts)
    )
    return " ".join(points)
