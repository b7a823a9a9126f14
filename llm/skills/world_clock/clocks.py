"""Answers about the time of day, here and elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from llm.skills.world_clock.dates import count, day_in_words
from llm.skills.world_clock.entities import Entities, NamedClock, NamedPlace

_OF_NOW = frozenset({"time", "day", "week", "week number", "month", "year", "hour"})
_OF_DATES = frozenset({"until", "left", "leap"})


def time_answer(found: Entities, now: datetime, zone: tzinfo) -> str | None:
    """Return the answer to a question about the time of day, asked at `now` by somebody in `zone`;
    None for any other question. Raises OverflowError for times that do not exist."""
    wishes, span, places = found.wishes, found.span, found.places
    is_of_year = found.years_away is not None and not wishes & {"week", "week number"}
    if found.year or is_of_year or found.month is not None or "second" in wishes:
        return None
    if found.clock:
        return None if found.days or span else _of_clock(found, found.clock, now, zone)
    if wishes & _OF_DATES or (span and (found.days or span.months or "count" in wishes)):
        return None
    verb = "is"
    if span:
        now += found.sign * timedelta(seconds=float(span.seconds))
        verb = "will be" if found.sign > 0 else "was"
    elif "past" in wishes:
        return None
    if places:
        # "is it tomorrow already in sydney?", but neither "when is easter in greece?" nor "here"
        is_asked = found.days or wishes & (_OF_NOW | {"now", "difference"})
        is_near = all(day.is_weekday or day.offset is not None for day, _ in found.days)
        first = places[0] if places[1:] else NamedPlace("here", zone)
        told = " ".join(f"It {verb} {_there(place, now, first)}." for place in places)
        return told if is_asked and is_near else None
    is_counted = "count" in wishes and "time" not in wishes
    is_of_now = not span.is_of_days if span else bool(wishes & _OF_NOW)
    if found.days or is_counted or not is_of_now:
        return None
    local = now.astimezone(zone)
    return f"It {verb} {_in_words(local)}{found.week_of(local)}."


def _in_words(local: datetime) -> str:
    """Return a time in words: "06:05 on Sunday 22 November 2026 (CET)"."""
    return f"{local:%H:%M} on {day_in_words(local.date())} ({local.tzname()})"


def _there(place: NamedPlace, now: datetime, first: NamedPlace) -> str:
    """Return the time in a place, and how far that is from the time in the first one."""
    there, here = now.astimezone(place.zone), now.astimezone(first.zone)
    told = f"{_in_words(there)} {place.where}"
    apart = (there.utcoffset() or timedelta()) - (here.utcoffset() or timedelta())
    if place == first or not apart:
        return told if place == first else f"{told}, the same as {first.where}"
    return f"{told}, {_hours(abs(apart))} {'ahead' if apart > timedelta() else 'behind'}"


def _of_clock(found: Entities, clock: NamedClock, now: datetime, zone: tzinfo) -> str | None:
    """Return a time of day in two places, in one and here both ways, or how long it is until it."""
    places, local = found.places, now.astimezone(zone)
    if not places:
        due = datetime.combine(local, clock.of_day, zone)
        due = due if due > local else due + timedelta(days=1)
        left = _hours(due.astimezone(UTC) - now)
        return f"It is {_in_words(local)}, {left} before {due:%H:%M}."
    if len(places) > 2 or "until" in found.wishes:
        return None
    if len(places) == 1:  # "what is 3pm in tokyo" may mean either
        [there], here = places, NamedPlace("here", zone)
        return f"{_convert(clock, here, there, now)}; {_convert(clock, there, here, now)}."
    # The time is that of the place next to it: "what time is it in lima when it's 8pm in berlin".
    gaps = [(min(abs(p.start - clock.end), abs(clock.start - p.end)), -p.start) for p in places]
    one, other = places if gaps[0] < gaps[1] else places[::-1]
    return f"{_convert(clock, one, other, now)}."


def _convert(clock: NamedClock, one: NamedPlace, other: NamedPlace, now: datetime) -> str:
    """Return a time of today in the first place and in the second one."""
    here = datetime.combine(now.astimezone(one.zone), clock.of_day, one.zone)
    there = here.astimezone(other.zone)
    days = (there.date() - here.date()).days
    later = {0: "", 1: " on the next day", -1: " on the day before"}.get(days, "")
    return (
        f"{here:%H:%M} {_with_zone(one, here)} is {there:%H:%M}{later} {_with_zone(other, there)}"
    )


def _with_zone(place: NamedPlace, local: datetime) -> str:
    zone = str(local.tzname())
    return place.where if place.where.endswith(f" {zone}") else f"{place.where} ({zone})"


def _hours(span: timedelta) -> str:
    hours, rest = divmod(int(span.total_seconds()), 3600)
    parts = [count(hours, "hour")] * (hours > 0) + [count(rest // 60, "minute")] * (rest > 59)
    return " ".join(parts) or "less than a minute"
