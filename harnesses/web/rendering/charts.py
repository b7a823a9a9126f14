"""Counts laid out for drawing: plain numbers, which the templates turn into SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from storage.chat_log.statistics import DayStats, HeatMap

LEVELS = 5  # shades from nothing to the most
_HOURS_OF_WEEK = 168


@dataclass(frozen=True, slots=True)
class Bar:
    """A day of a bar chart: heights from 0 to 100, all lines and the answers among them."""

    day: date
    lines: int
    replies: int
    height: float
    reply_height: float


def bars(days: Iterable[DayStats], count: int, last: date) -> Sequence[Bar]:
    """Return the `count` days that end with `last`, silent ones too, oldest first."""
    known = {day.date: day for day in days}
    wanted = [last - timedelta(days=count - 1 - number) for number in range(count)]
    shown = [known.get(day, DayStats(day, 0, 0)) for day in wanted]
    most = max((day.lines for day in shown), default=0) or 1
    return [
        Bar(day.date, day.lines, day.replies, 100 * day.lines / most, 100 * day.replies / most)
        for day in shown
    ]


def shade(count: int, most: int) -> int:
    """0 for nothing, else 1 to `LEVELS` - 1; by the root, so that quiet hours can be told apart."""
    if not count or not most:
        return 0
    return max(1, math.ceil((LEVELS - 1) * math.sqrt(count / most)))


def shift_timezone(heat: HeatMap, zone: ZoneInfo, now: datetime) -> HeatMap:
    """Return a heat map of UTC as it is in a zone, by the whole hours that are between them now."""
    offset = now.astimezone(zone).utcoffset() or timedelta()
    hours = round(offset / timedelta(hours=1))
    flat = [count for row in heat for count in row]
    moved = [flat[(slot - hours) % _HOURS_OF_WEEK] for slot in range(_HOURS_OF_WEEK)]
    return tuple(tuple(moved[day * 24 : day * 24 + 24]) for day in range(7))


def spark(counts: Sequence[int], width: int, height: int) -> str:
    """Return the points of a small line, for `<polyline>`; empty where there is nothing to see."""
    most = max(counts, default=0)
    if not most or len(counts) < 2:
        return ""
    step = width / (len(counts) - 1)
    points = (
        f"{number * step:.1f},{height - 1 - (height - 2) * count / most:.1f}"
        for number, count in enumerate(counts)
    )
    return " ".join(points)
