"""When something is to happen, as people write it: "in 20 minutes", "every monday at 9".

Only these forms are understood, each from its first word on:

    in 20 minutes     in 2h     in 1 hour 30 minutes     in half an hour
    at 18:00     at 6pm     today at 18:00     tomorrow at 9     monday at 9:30
    2026-12-24 18:00     on 2026-12-24 at 18:00
    every day at 9     every weekday at 8:30     every monday and thursday at 9     every hour
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from llm.timetable import Timetable

FORMS = (
    "in 20 minutes, in 2h, at 18:00, tomorrow at 9, monday at 9:30, 2026-12-24 18:00,"
    " every day at 9, every weekday at 8:30, every monday and thursday at 9, every hour"
)
"""Examples of all that is understood."""

FURTHEST = timedelta(days=366)

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNIT = r"(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])"
_COUNT = rf"(?:\d{{1,6}}|half an?\s|an?\s)\s*{_UNIT}"
_PARTS = re.compile(rf"(\d+|half an?\s|an?\s)\s*({_UNIT})", re.IGNORECASE)
_CLOCK = (
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s*(?P<half>[ap]m\b)?(?![\w:])"
    r"|noon\b|midnight\b"
)
_DAY = r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
_IN = re.compile(
    rf"in\s+(?P<counts>{_COUNT}(?:(?:\s*,)?\s*(?:and\s+)?\d{{1,6}}\s*{_UNIT})*)", re.IGNORECASE
)
_ONCE = re.compile(
    rf"(?:(?:on\s+|next\s+)?(?P<day>today\b|tomorrow\b|{_DAY}|\d{{4}}-\d\d-\d\d)[\sT,]\s*)?"
    rf"(?P<at>at\s+)?(?:{_CLOCK})(?:\s+(?P<later>today|tomorrow)\b)?",
    re.IGNORECASE,
)
_EVERY = re.compile(
    rf"every\s+(?:(?P<hourly>hour\b)|(?P<days>day\b|weekday\b|{_DAY}(?:(?:\s*,|\s+and)\s*{_DAY})*)"
    rf"\s+at\s+(?:{_CLOCK}))",
    re.IGNORECASE,
)
_FILLING = re.compile(r"[\s:,-]*(?:(?:to|that)\s+)?", re.IGNORECASE)


class NotUnderstood(ValueError):
    """No form that is known, or a time that cannot be; the message is for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class When:
    """The first time, in UTC, and for what comes again the cron expression `rule`."""

    due: datetime
    rule: str = ""


def when(text: str, now: datetime, zone: tzinfo) -> tuple[When, str]:
    """The time with which `text` begins, as meant at `now` in `zone`, and what follows it.

    Raises NotUnderstood.
    """
    said = text.strip()
    if match := _EVERY.match(said):
        found = _again(match, now, zone)
    elif match := _IN.match(said):
        found = When(now + _length(match["counts"]))
    elif (match := _ONCE.match(said)) and (match["at"] or match["day"]):
        found = When(_once(match, now, zone))
    else:
        raise NotUnderstood(f"I understand times like these: {FORMS}.")
    if not now < found.due <= now + FURTHEST:
        raise NotUnderstood("That time has passed, or is more than a year away.")
    rest = said[match.end() :]
    return found, rest[filling.end() :] if (filling := _FILLING.match(rest)) else rest


def _length(counts: str) -> timedelta:
    seconds = 0.0
    for count, unit in _PARTS.findall(counts.lower()):
        number = int(count) if count.isdigit() else 0.5 if count.startswith("half") else 1
        seconds += number * _UNITS[unit[0]]
    return timedelta(seconds=min(seconds, 1e9))


def _once(match: re.Match[str], now: datetime, zone: tzinfo) -> datetime:
    """The next time that fits what was written."""
    local = now.astimezone(zone)
    clock, day = _clock(match), (match["day"] or match["later"] or "").lower()
    if "-" in day:
        return _at(_date(day), clock, zone)
    if day in ("today", "tomorrow"):
        return _at(local.date() + timedelta(days=day == "tomorrow"), clock, zone)
    ahead = (_DAYS.index(day[:3]) - local.weekday()) % 7 if day else 0
    first = _at(local.date() + timedelta(days=ahead), clock, zone)
    step = timedelta(days=ahead + (7 if day else 1))
    return first if first > now else _at(local.date() + step, clock, zone)


def _again(match: re.Match[str], now: datetime, zone: tzinfo) -> When:
    if match["hourly"]:
        rule = f"{now.astimezone(zone).minute} * * * *"
    else:
        clock, days = _clock(match), match["days"].lower()
        known = {"day": "*", "weekday": "1-5"}
        named = [str(1 + _DAYS.index(day[:3])) for day in re.findall(_DAY, days)]
        rule = f"{clock.minute} {clock.hour} * * {known.get(days) or ','.join(named)}"
    return When(Timetable(rule, zone).after(now), rule)


def _clock(match: re.Match[str]) -> time:
    """The time of day that was written. Raises NotUnderstood."""
    if match["hour"] is None:
        return time(12 if "noon" in match[0].lower() else 0)
    hour, half = int(match["hour"]), (match["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        raise NotUnderstood(f"{match['hour']} {half} is no time of day.")
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    try:
        return time(hour, int(match["minute"] or 0))
    except ValueError:
        raise NotUnderstood(f"{hour}:{match['minute'] or '00'} is no time of day.") from None


def _date(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise NotUnderstood(f"{text} is no date.") from None
    return max(date(1970, 1, 2), min(day, date(9000, 1, 1)))  # those have passed, or are too far


def _at(day: date, clock: time, zone: tzinfo) -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)
