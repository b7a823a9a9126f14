"""Counts laid out for drawing."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from harnesses.web.rendering.charts import LEVELS, BarChart, shade, shift_timezone, spark
from storage.chat_log.statistics import DayStats

SUMMER = datetime(2026, 7, 1, tzinfo=UTC)


def heat(day: int, hour: int) -> tuple[tuple[int, ...], ...]:
    """A week with one line in it."""
    return tuple(tuple(int((d, h) == (day, hour)) for h in range(24)) for d in range(7))


def test_silent_days_have_their_place_among_the_others_and_many_are_drawn_by_month() -> None:
    day = date(2026, 3, 1)
    days = [
        DayStats(day, 10, 5),
        DayStats(date(2026, 3, 3), 20, 0),
        DayStats(date(2020, 1, 1), 99, 0),
    ]
    shown = BarChart.from_days(days, day, date(2026, 3, 4))
    assert (shown.unit, shown.most) == ("day", 20)
    assert [(bar.label, bar.height, bar.reply_height) for bar in shown.bars] == [
        ("1 Mar 2026", 50, 25),
        ("2 Mar 2026", 0, 0),
        ("3 Mar 2026", 100, 0),
        ("4 Mar 2026", 0, 0),
    ]
    assert {bar.height for bar in BarChart.from_days([], day, day).bars} == {0}
    months = BarChart.from_days(days, date(2025, 1, 31), date(2026, 3, 9))
    assert (months.unit, months.most, len(months.bars)) == ("month", 30, 15)
    assert (months.bars[0].label, months.bars[0].lines) == ("Jan 2025", 0)
    assert (months.bars[-1].label, months.bars[-1].lines) == ("Mar 2026", 30)


def test_the_most_is_darkest_and_one_line_is_not_nothing() -> None:
    shades = [shade(count, 1000) for count in (0, 1, 100, 1000)]
    assert shades == sorted(shades)
    assert (shades[0], shades[1], shades[-1]) == (0, 1, LEVELS - 1)
    assert shade(0, 0) == 0


def test_a_week_is_turned_to_the_hours_of_a_zone_across_its_ends() -> None:
    assert shift_timezone(heat(6, 23), ZoneInfo("Europe/Vienna"), SUMMER) == heat(0, 1)
    assert shift_timezone(heat(0, 2), ZoneInfo("America/New_York"), SUMMER) == heat(6, 22)
    assert shift_timezone(heat(3, 12), ZoneInfo("UTC"), SUMMER) == heat(3, 12)
    assert shift_timezone(heat(3, 12), ZoneInfo("Asia/Kabul"), SUMMER) == heat(3, 17)  # +4:30
    assert shift_timezone(heat(3, 12), ZoneInfo("Asia/Kolkata"), SUMMER) == heat(3, 18)  # +5:30


def test_a_small_line_goes_from_edge_to_edge_and_stays_inside() -> None:
    points = [tuple(map(float, point.split(","))) for point in spark((0, 4, 2), 96, 24).split()]
    assert points == [(0, 23), (48, 1), (96, 12)]
    assert spark((0, 0), 96, 24) == spark((), 96, 24) == spark((7,), 96, 24) == ""
