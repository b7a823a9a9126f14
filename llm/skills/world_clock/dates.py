"""Answers about dates: named days, the days between them, spans, months and years."""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import date

from llm.reading.days import Day, add_duration
from llm.skills.world_clock.entities import Entities

_NEAR = {-1: "Yesterday was", 0: "Today is", 1: "Tomorrow is"}
_OTHER_UNITS = frozenset({"second", "minute", "hour", "month", "quarter"})


def date_answer(found: Entities, today: date) -> str | None:
    """Return the answer to a question about dates, asked on `today`; None for any other one.

    Raises ValueError and OverflowError for days that do not exist.
    """
    wishes = found.wishes
    is_of_hours = "count" in wishes and wishes & _OTHER_UNITS
    # "the last sunday in october", "in what year is 29 february a saturday"
    is_rule = found.days and (found.month is not None or {"year", "count"} & wishes == {"year"})
    if found.clock or found.places or is_of_hours or is_rule or "second" in wishes:
        return None
    if not (found.days or found.span or wishes & {"until", "past"}):
        return _of_calendar(found, today)
    named = _days(found, today)
    if found.span:
        if len(named) > 1 or not found.span.is_of_days or (not named and "count" in wishes):
            return None
        start = named[0][1] if named else today
        day = add_duration(start, found.span, found.sign)
        return _sentence(Day(), day, found, today) if day else None
    if len(named) > 1 and any(day.is_of_any_month for day, _ in named):
        return None  # "the next friday the 13th", "from the 3rd to the 29th of february"
    if len(named) == 2 and wishes & {"count", "between"}:
        first, second = sorted(day for _, day in named)
        days = _days_in_words((second - first).days, found)
        return f"{days} from {day_in_words(first)} to {day_in_words(second)}."
    # "is tomorrow a tuesday?" asks for tomorrow.
    ranks = [0 if day.offset is not None else 2 if day.is_weekday else 1 for day, _ in named]
    best = [each for each, rank in zip(named, ranks, strict=True) if rank == min(ranks)]
    return _sentence(*best[0], found, today) if len(best) == 1 else None


def day_in_words(day: date) -> str:
    """Return a day in words: "Sunday 22 November 2026"."""
    return f"{day:%A} {day.day} {day:%B} {day.year}"


def _days(found: Entities, today: date) -> list[tuple[Day, date]]:
    """Return the days with their dates. A month or year alone is its first day."""
    year = found.year_at(today)
    days = found.days
    if not days and (year or found.month):
        days = [(Day(month=found.month or 1, day=1), False)]
    named = []
    for day, is_past in days:
        if year and not day.year and (day.month or day.feast):
            day = replace(day, year=year)
        when = day.nearest(today, past=is_past or "past" in found.wishes)
        if when is None:
            raise ValueError(f"{day.words} is no date")
        named.append((day, when))
    return named


def _sentence(day: Day, when: date, found: Entities, today: date) -> str:
    """Return a day and how far away it is."""
    days = (when - today).days
    told = f"{day_in_words(when)}{found.week_of(when)}"
    if day.offset is not None and days in _NEAR:
        return f"{_NEAR[days]} {told}."
    verb = "was" if days < 0 else "is"
    subject = f"{day.words[:1].upper()}{day.words[1:]} {verb} on" if day.feast else f"That {verb}"
    first, last = sorted((when, today))
    years = last.year - first.year - ((last.month, last.day) < (first.month, first.day))
    distance = _days_in_words(abs(days), found) + (f", {count(years, 'year')}" if years else "")
    away = f", in {distance}" if days > 0 else f", {distance} ago" if days else ", today"
    lead = f"Today is {day_in_words(today)}. " if day.is_weekday else ""
    return f"{lead}{subject} {told}{away}."


def _of_calendar(found: Entities, today: date) -> str | None:
    """Return the length of a year or month, and whether a year is a leap year."""
    wishes, named = found.wishes, found.year_at(today)
    year = named or today.year
    if found.month is not None and "count" in wishes:
        month = found.month or today.month
        days, rest = calendar.monthrange(year, month)[1], 0
        if (year, month) == (today.year, today.month):
            rest = days - today.day
        told = f"{calendar.month_name[month]} {year} has {days} days"
    elif found.month is None and ("leap" in wishes or ("count" in wishes and named)):
        is_leap, rest = calendar.isleap(year), 0
        if year == today.year:
            rest = (date(year, 12, 31) - today).days
        told = f"{year} is {'a' if is_leap else 'no'} leap year and has {365 + is_leap} days"
    else:
        return None
    if "leap" in wishes:
        following = next(y for y in range(year + 1, year + 9) if calendar.isleap(y))
        return f"{told}; the next leap year is {following}."
    return f"{told}, {_days_in_words(rest, found)} of which are left." if rest else f"{told}."


def _days_in_words(days: int, found: Entities) -> str:
    weeks, rest = divmod(days, 7)
    if "week" not in found.wishes or not weeks:
        return count(days, "day")
    more = f" and {count(rest, 'day')}" if rest else ""
    return f"{count(days, 'day')}, {count(weeks, 'week')}{more}"


def count(number: int, unit: str) -> str:
    """Return "1 day", "2 days"."""
    return f"{number} {unit}{'' if number == 1 else 's'}"
