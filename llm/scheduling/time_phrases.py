"""Natural-language times, English and German: "in 20 minutes", "every monday at 9".

The time may precede, follow or interrupt the text of a reminder. Examples:

    in 20 minutes     10m     in half an hour     in an hour and a half     2 hours from now
    at 18:00     at 6pm     at noon     half past six     18 Uhr
    tomorrow     tomorrow at 9     tonight at 8     next friday at 5pm     on the 24th at 18:00
    2026-12-24 18:00     on 24 December     am 24.12. um 18 Uhr     übermorgen
    every day at 9 and 17     every weekday at 8:30     every monday and thursday     every 2 hours

A day without a time of day means 9:00, or the time that stands for its part of the day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from llm.scheduling.cron_schedule import Timetable
from llm.scheduling.days import day_in, shift_day, weekday_of
from llm.scheduling.time_patterns import (
    HOUR_WORDS,
    INTERVAL,
    MONTHS,
    PARTS,
    PARTS_OF_DAY,
    SEPARATOR,
    WEEKDAY,
    count_of,
    forms,
)

EXAMPLE_TIMES = (
    "in 20 minutes, 10m, in half an hour, at 18:00, at 6pm, tomorrow at 9, tonight at 8,"
    " next friday at 5pm, on the 24th at 18:00, 2026-12-24 18:00, every day at 9,"
    " every weekday at 8:30, every monday and thursday at 9, every hour"
)
"""Examples of the supported forms, for messages to people."""

EXAMPLE_RECURRENCES = (
    "every day at 9, every weekday at 8:30, every weekend, every monday and thursday,"
    " every month on the 5th, every 3 months, every hour, every 2 hours"
)
"""Examples of the recurrences that cron can express, for messages to people."""

MAX_DISTANCE = timedelta(days=366)
"""The furthest a time may lie in the future."""

MAX_TEXT_LENGTH = 500
"""Maximum characters of a text in which a time is looked for: matching the patterns blocks the
event loop."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "t": 86_400, "w": 604_800}
_MORNING = time(9)  # of a day without a time
_NTH = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th|\.)$")
_NUMBER_AT = re.compile(r"[\s,]+(?:at|um)\s+\d", re.IGNORECASE)  # of no known form: "at 1800"
_LATE_PARTS = frozenset(
    ("afternoon", "nachmittag", "evening", "abend", "night", "nacht", "tonight")
)
_PAST = re.compile(
    r"\b(?:yesterday|gestern|vorgestern|last (?:week|night|year))\W*$", re.IGNORECASE
)
_FILLING = re.compile(
    r"(?:[\s:,;-]+|(?:to|that|about|of|dass|daran|zu)\b(?=[\s,:])"
    r"|an (?=(?:den|die|das|dem|mein\w*|unser\w*)\s))*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:[\s,;:-]+(?:please|pls|bitte|thanks|thank you|danke))?[\s,;:?!-]*$", re.I)
_RECURRENT = re.compile(r"(?:every|each(?! of\b)|jede[ns])\s", re.IGNORECASE)
_STEPS = {"other": 2, "second": 2, "third": 3, "zweite": 2, "dritte": 3}
_NO_RECURRENCE = f"I cannot repeat that. What I can repeat is: {EXAMPLE_RECURRENCES}."
_ONE_TIME = (
    "That is more than one time. Set a reminder for each, or repeat one, as in: every day at 9 and"
    " 17, every monday and friday at 8."
)
_UNSUPPORTED = (
    *("minute", "fortnight", "quarter", "quartal", "year", "jahr"),
    *("yearly", "annually", "jährlich"),
)
_DROPPED = re.compile(r"(?:[\s,;:-]+(?:please|pls|bitte|thanks|thank you|danke))[\s.?!]*$", re.I)


class NotUnderstood(ValueError):
    """The text has no known form of a time, or an impossible one; the message is for its author."""


@dataclass(frozen=True, slots=True)
class ResolvedTime:
    """The (first) time, in UTC, and the cron expression `rule` of a recurring one."""

    due: datetime
    rule: str = ""


def parse_time(text: str, now: datetime, zone: tzinfo) -> tuple[ResolvedTime, str]:
    """Return the time that `text` names, relative to `now` in `zone`, and the text without it.

    Raises NotUnderstood, also for a time that has passed or is further away than `MAX_DISTANCE`.
    """
    parts, rest = _split_time(text)
    if len(text) > MAX_TEXT_LENGTH:
        raise NotUnderstood(f"That is too long: write at most {MAX_TEXT_LENGTH} characters.")
    if not parts:
        raise NotUnderstood(f"I understand times like these: {EXAMPLE_TIMES}.")
    if "every" not in parts and _RECURRENT.match(text.strip()):
        raise NotUnderstood(_NO_RECURRENCE)
    if "joined" in parts:
        raise NotUnderstood(_ONE_TIME)
    found = _resolve(parts, now, zone)
    if not now < found.due <= now + MAX_DISTANCE:
        raise NotUnderstood("That time has passed, or is more than a year away.")
    return found, rest


def without_time(text: str) -> str | None:
    """Return a text without the time that `parse_time` finds in it, None if it finds none."""
    parts, rest = _split_time(text)
    return rest if parts else None


def _split_time(text: str) -> tuple[dict[str, str], str]:
    """Return the named groups of the time in a text, in lower case, and the rest of the text.

    The group `joined` says that there is another time beside it.
    """
    said = " ".join(text.split())
    match = _find_time(said) if len(text) <= MAX_TEXT_LENGTH else None
    if match is None:
        return {}, said
    before, after = said[: match.start()], said[match.end() :]
    parts = {name: part.lower() for name, part in match.groupdict().items() if part}
    if (parts.get("day") or parts.get("every")) and not _has_clock(parts):
        before, after = _with_other(before, after, parts, "clock")
    elif _has_clock(parts) and not parts.get("day") and not parts.get("every"):
        before, after = _with_other(before, after, parts, "day")
    if forms().joined_after.match(after) or forms().joined_before.search(before):
        parts["joined"] = "yes"
    elif not _has_clock(parts) and "counts" not in parts and _NUMBER_AT.match(after):
        return {}, said
    return parts, _clean(before, after)


def _find_time(said: str) -> re.Match[str] | None:
    """Find the time in a text: at its beginning, else at its end, else anywhere in it.

    Of several matches in the same place the leftmost counts, then the longest. None also if the
    words before it are about the past ("yesterday at 5").
    """
    end = _TAIL.search(said)
    body = said[: end.start()] if end else said
    places: tuple[tuple[tuple[re.Pattern[str], ...], Callable[..., re.Match[str] | None]], ...] = (
        (forms().leading, lambda pattern: pattern.match(said)),
        (forms().trailing, lambda pattern: pattern.search(body)),
        (forms().anywhere, lambda pattern: pattern.search(said)),
    )
    for patterns, find in places:
        found = [match for pattern in patterns if (match := find(pattern)) and match[0].strip()]
        if found:
            best = max(found, key=lambda match: (-match.start(), match.end()))
            if _PAST.search(said[: best.start()]):
                return None
            return best
    return None


def _with_other(before: str, after: str, parts: dict[str, str], other: str) -> tuple[str, str]:
    """Add a separate time of day or day (`other`) at the end of a text to `parts`: "tomorrow call
    mum at 9". Return both halves of the text without it."""
    tail = _TAIL.search(after)
    body = after[: tail.start()] if tail else after
    for pattern in forms().trailing:
        match = pattern.search(body)
        if match and match[0] and match.start() > 0:
            found = {name: part.lower() for name, part in match.groupdict().items() if part}
            is_clock = _has_clock(found) and not found.get("day")
            is_day = bool(found.get("day")) and not _has_clock(found)
            if (is_clock if other == "clock" else is_day) and not found.get("every"):
                parts |= found
                return before, body[: match.start()]
    return before, after


def _resolve(parts: dict[str, str], now: datetime, zone: tzinfo) -> ResolvedTime:
    if "every" in parts:
        return _again(parts, now, zone)
    if "more" in parts:
        raise NotUnderstood(_ONE_TIME)
    if "counts" in parts:
        return ResolvedTime(_later(parts["counts"], now, zone))
    return ResolvedTime(_once(parts, now, zone))


def _has_clock(parts: dict[str, str]) -> bool:
    return any(parts.get(name) for name in ("hour", "hourword", "named", "relative"))


def _later(counts: str, now: datetime, zone: tzinfo) -> datetime:
    if match := MONTHS.fullmatch(counts):
        local = now.astimezone(zone)
        day = shift_day(local.date(), f"{count_of(match['count']):.0f} {match['unit']}")
        return _at(day, local.time(), zone) if day else now
    seconds = 0.0
    for match in PARTS.finditer(counts):
        number = count_of(match["count"]) + 0.5 * bool(match["half"])
        unit = match["unit"]
        seconds += number * (3600 if unit.startswith("stunde") else _UNITS[unit[0]])
    # Capped, as a larger sum would overflow; `parse_time` refuses anything beyond MAX_DISTANCE.
    return now + timedelta(seconds=min(seconds, 1e9))


def _once(parts: dict[str, str], now: datetime, zone: tzinfo) -> datetime:
    """Return the next time that fits the day and time of day in `parts`."""
    local = now.astimezone(zone)
    today, name = local.date(), parts.get("day", "")
    part = _part_of(name)
    clock, later = _clock_of(parts, part)
    if not name:
        # No day: the next occurrence. "half past six" may mean either half of the day.
        hours = (0, 12) if _is_of_twelve(parts, clock) else (0,)
        todays = [_at(today, clock.replace(hour=(clock.hour + more) % 24), zone) for more in hours]
        coming = [first for first in todays if first > now]
        return min(coming) if coming else _at(today + timedelta(days=1), clock, zone)
    if not _has_clock(parts) and not part and name in ("today", "heute"):
        raise NotUnderstood("At what time today? Write for example: today at 18:00.")
    day = _day(name, today, part)
    if (weekday := _weekday(name)) is not None:
        ahead = (weekday - today.weekday()) % 7
        day = today + timedelta(days=ahead)
        if _at(day, clock, zone) <= now or (ahead == 0 and "next" in name):
            day += timedelta(days=7)
    elif _NTH.search(name) and _at(day, clock, zone) <= now:
        day = _day(name, today + timedelta(days=1), part)
    return _at(day + timedelta(days=later), clock, zone)


def _is_of_twelve(parts: dict[str, str], clock: time) -> bool:
    """Return whether a time in words, such as "half past six", may also mean the afternoon."""
    in_words = parts.get("relative") or parts.get("hourword")
    return bool(in_words) and not _half_of(parts) and clock.hour < 12


def _half_of(parts: dict[str, str]) -> str:
    """Return "a" or "p" if the text says am or pm, else ""."""
    return next((parts[name][0] for name in ("half", "half2", "half3") if parts.get(name)), "")


def _day(name: str, today: date, part: str) -> date:
    """Return the date of a phrase such as "tomorrow evening" or "on the 24th of december".

    A weekday yields `today`, and its date is up to the caller. Raises NotUnderstood.
    """
    name = re.sub(r"^(?:on|am|next|this|coming|the|nächsten|kommenden)\s+", "", name)
    name = re.sub(r"^the\s+", "", name)
    if name.startswith(("today", "tonight", "this", "heute")) or name == part:
        return today
    ahead = {"tomorrow": 1, "morgen": 1, "übermorgen": 2, "day": 2}.get(name.split()[0])
    if ahead:
        return today + timedelta(days=ahead)
    if match := _NTH.fullmatch(name):
        return _of_month(int(match[1]), today)
    day = day_in(name.replace(" ,", ","), today)
    if day is None and _weekday(name) is None:
        raise NotUnderstood(f"{name} is no date.")
    # Clamped, as conversion to UTC could overflow; `parse_time` refuses either end anyway.
    return max(date(1970, 1, 2), min(day or today, date(9000, 1, 1)))


def _of_month(number: int, today: date) -> date:
    """Return the next date from `today` on with the given day of the month."""
    for step in range(366):
        day = today + timedelta(days=step)
        if day.day == number:
            return day
    raise NotUnderstood(f"No month has a day {number}.")


def _weekday(name: str) -> int | None:
    match = re.search(rf"\b({WEEKDAY})\b", name)
    return weekday_of(_full(match[1])) if match else None


def _full(name: str) -> str:
    """Return a weekday in the singular, or its first three letters, as `weekday_of` knows it."""
    name = name.removesuffix("s") if name.endswith(("days", "tags")) else name
    return name if weekday_of(name) is not None else name[:3]


def _part_of(name: str) -> str:
    """Return the part of the day at the end of a phrase ("tomorrow evening", "tonight"), or ""."""
    words = name.split()
    is_part = bool(words) and words[-1] in PARTS_OF_DAY and (len(words) > 1 or name == "tonight")
    return words[-1] if is_part else ""


def _again(parts: dict[str, str], now: datetime, zone: tzinfo) -> ResolvedTime:
    local = now.astimezone(zone)
    every, step = _interval(parts["every"].removeprefix("on "))
    if every in ("hour", "stunde", "hourly", "stündlich"):
        if "more" in parts:
            raise NotUnderstood(_NO_RECURRENCE)
        start = _clock_of(parts, "")[0] if _has_clock(parts) else local.time()
        rule = f"{start.minute} {_cron_field(start.hour, 0, 23, step)} * * *"
    else:
        part = every if every in PARTS_OF_DAY else ""
        times = _times_of_day(_clocks_of(parts, part))
        rule = f"{times} {_days_of(every, step, parts.get('on', ''), local)}"
    return ResolvedTime(Timetable(rule, zone).after(now), rule)


def _interval(every: str) -> tuple[str, int]:
    """Return the unit of a recurrence and the number of units between two times: "other hour" is
    ("hour", 2). Raises NotUnderstood for an interval that cron cannot express."""
    match = INTERVAL.fullmatch(every)
    if match is None:
        if every in _UNSUPPORTED:
            raise NotUnderstood(_NO_RECURRENCE)
        return every, 1
    word = match["step"]
    digits = re.match(r"\d+", word)
    word = re.sub(r"(?<=te)[nrs]$", "", word)
    step = int(digits[0]) if digits else _STEPS.get(word) or HOUR_WORDS.get(word, 0)
    # The fields of a cron expression start anew with each day, month and year, so that an interval
    # must divide them: 24 hours and 12 months. Days and weeks divide neither months nor years.
    for unit, names, whole in (("hour", ("hour", "stunde"), 24), ("month", ("month", "monat"), 12)):
        if match["unit"].startswith(names) and step and whole % step == 0:
            return unit, step
    raise NotUnderstood(_NO_RECURRENCE)


def _times_of_day(clocks: Sequence[time]) -> str:
    """Return the first two fields of a cron expression: minute and hour. Raises NotUnderstood."""
    minutes, hours = sorted({c.minute for c in clocks}), sorted({c.hour for c in clocks})
    if len(set(clocks)) != len(minutes) * len(hours):
        raise NotUnderstood(
            "Several times of a day must have the same minutes, as in: every day at 9:30 and 17:30."
            " Set a reminder for each."
        )
    return f"{','.join(map(str, minutes))} {','.join(map(str, hours))}"


def _cron_field(value: int, first: int, last: int, step: int) -> str:
    """Return the cron field from `first` to `last` with every `step`th value, `value` among them;
    "*" for all."""
    return "*" if step == 1 else f"{first + (value - first) % step}-{last}/{step}"


def _days_of(every: str, step: int, on: str, local: datetime) -> str:
    """Return the last three fields of a cron expression: day of month, month, day of week."""
    named = [weekday_of(_full(day)) for day in re.findall(rf"\b({WEEKDAY})\b", f"{every} {on}")]
    numbers = [str(1 + day) for day in named if day is not None]
    monthly = every in ("month", "monat", "monthly", "monatlich")
    if numbers and monthly:  # "every month on monday" does not say on which one
        raise NotUnderstood(_NO_RECURRENCE)
    if numbers:
        return f"* * {','.join(numbers)}"
    if every in ("weekday", "werktag", "werktags", "weekdays"):
        return "* * 1-5"
    if every in ("weekend", "weekends", "wochenende"):
        return "* * 6,7"
    if every in ("week", "woche", "weekly", "wöchentlich"):
        return f"* * {local.isoweekday()}"
    if monthly:
        # At most the 28th, which every month has: cron skips months without the day.
        nth = re.search(r"\d{1,2}", on)
        day = _month_day(nth[0]) if nth else min(local.day, 28)
        return f"{day} {_cron_field(local.month, 1, 12, step)} *"
    if nth := re.match(r"\d{1,2}", every):
        return f"{_month_day(nth[0])} * *"
    return "* * *"


def _month_day(number: str) -> int:
    if not 1 <= int(number) <= 31:
        raise NotUnderstood(f"No month has a day {number}.")
    return int(number)


def _clocks_of(parts: dict[str, str], part: str) -> Sequence[time]:
    """Return the time of day in `parts` and those in its group `more`. Raises NotUnderstood."""
    told = [parts]
    for text in filter(None, SEPARATOR.split(parts.get("more", ""))):
        # Only after "at" does `clock` match a number word.
        match = forms().clock.fullmatch(text) or forms().clock.fullmatch(f"at {text}")
        assert match
        told.append({name: group for name, group in match.groupdict().items() if group})
    if re.search(r"\s(?:or|oder)\s", parts.get("more", "")):
        raise NotUnderstood(_ONE_TIME)
    clocks = [_clock_of(each, part)[0] for each in told]
    # In "at 8 and 10 pm" the first may be either.
    is_unclear = [
        not _half_of(each) and not each.get("named") and 1 <= clock.hour <= 12
        for each, clock in zip(told, clocks, strict=True)
    ]
    if any(is_unclear) and any(map(_half_of, told)):
        raise NotUnderstood("Say am or pm with each time, as in: every day at 8am and 10pm.")
    return clocks


def _clock_of(parts: dict[str, str], part: str) -> tuple[time, int]:
    """Return the time of day and the number of days to add to the day: "tonight at 1" is tomorrow.

    `part` is the part of the day, which may turn a 12-hour time into one after noon. Raises
    NotUnderstood.
    """
    if not _has_clock(parts):
        return PARTS_OF_DAY.get(part, _MORNING), 0
    if named := parts.get("named"):
        is_midnight = named in ("midnight", "mitternacht")
        return time(0 if is_midnight else 12), int(is_midnight and bool(part))
    hour, minute = _hour_and_minute(parts)
    half = _half_of(parts)
    if half and not 1 <= hour <= 12:
        raise NotUnderstood(f"{hour} {half}m is no time of day.")
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    elif part in _LATE_PARTS and hour <= 12:
        if part in ("night", "nacht", "tonight") and (hour == 12 or hour < 5):
            return time(hour % 12, minute), 1
        hour = hour % 12 + 12
    try:
        return time(hour, minute), 0
    except ValueError:
        raise NotUnderstood(f"{hour}:{minute:02} is no time of day.") from None


def _hour_and_minute(parts: dict[str, str]) -> tuple[int, int]:
    if relative := parts.get("relative"):
        hour = HOUR_WORDS.get(parts["of"]) or int(parts["of"])
        minutes = {"half past": 30, "quarter past": 15, "viertel nach": 15}.get(relative)
        if minutes is None:  # "quarter to seven", "halb sieben"
            minutes, hour = (30 if relative == "halb" else 45), (hour - 1) % 24
        return hour, minutes
    if word := parts.get("hourword"):
        return HOUR_WORDS[word], 0
    return int(parts["hour"]), int(parts.get("minute") or parts.get("past") or 0)


def _at(day: date, clock: time, zone: tzinfo) -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


def _clean(before: str, after: str) -> str:
    """Join the text around a time, without leading filler words and trailing courtesies."""
    text = f"{before.strip()} {after.strip()}".strip() if before.strip() else after
    text = text[match.end() :] if (match := _FILLING.match(text)) else text
    tail = (
        _DROPPED.search(text)
        if re.search(r"\b(?:please|pls|bitte|thanks|danke)\b", text, re.I)
        else None
    )
    return (text[: tail.start()] if tail else text).rstrip(" ,;:-")
