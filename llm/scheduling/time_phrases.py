"""Natural-language times, English and German: "in 20 minutes", "every monday at 9".

The time may precede, follow or interrupt the text of a reminder. Examples:

    in 20 minutes     10m     in half an hour     in an hour and a half     2 hours from now
    at 18:00     at 6pm     at noon     half past six     18 Uhr
    tomorrow     tomorrow at 9     tonight at 8     next friday at 5pm     on the 24th at 18:00
    2026-12-24 18:00     on 24 December     am 24.12. um 18 Uhr     übermorgen
    every day at 9     every weekday at 8:30     every monday and thursday     every 2 hours

A day without a time of day means 9:00, or the time that stands for its part of the day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache

from llm.scheduling.cron_schedule import Timetable
from llm.scheduling.days import day_in, shift_day, weekday_of

PARTS_OF_DAY: Mapping[str, time] = {
    **dict.fromkeys(("morning", "früh", "vormittag", "morgen"), time(9)),
    **dict.fromkeys(("noon", "mittag"), time(12)),
    **dict.fromkeys(("afternoon", "nachmittag"), time(15)),
    **dict.fromkeys(("evening", "abend"), time(19)),
    **dict.fromkeys(("tonight",), time(20)),
    **dict.fromkeys(("night", "nacht"), time(21)),
}
"""Default time of each part of the day."""

_ENGLISH = "one two three four five six seven eight nine ten eleven twelve"
_GERMAN = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
HOUR_WORDS: Mapping[str, int] = {
    word: number for words in (_ENGLISH, _GERMAN) for number, word in enumerate(words.split(), 1)
}
_HOURS = "|".join(sorted(HOUR_WORDS, key=len, reverse=True))
_MORE_WORDS = {
    "fifteen": 15.0,
    "twenty": 20.0,
    "thirty": 30.0,
    "forty": 40.0,
    "sixty": 60.0,
    "ninety": 90.0,
    "fünfzehn": 15.0,
    "zwanzig": 20.0,
    "dreißig": 30.0,
    "couple of": 2.0,
    "few": 3.0,
    "anderthalb": 1.5,
    "eineinhalb": 1.5,
    "zweieinhalb": 2.5,
} | dict.fromkeys(("a", "an", "ein", "eine", "einer", "einem", "einen"), 1.0)
_HALVES = ("half an", "half a", "einer halben", "halben")
_QUARTERS = ("quarter of an", "viertel")

WEEKDAY = (
    r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:days?)?"
    r"|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?"
)
"""Pattern of a weekday, full, abbreviated or plural, in English or German."""

# Longest first: the alternation of a regular expression takes the first branch that matches.
_NUMBER = "|".join(sorted((*HOUR_WORDS, *_MORE_WORDS), key=len, reverse=True))
_COUNT = (
    rf"(?:(?:a )?(?P<{{0}}>\d{{{{1,6}}}}(?:[.,]\d{{{{1,2}}}})?(?=\s|[a-z])"
    rf"|(?<![a-zäöüß])(?:(?:one|a) and a half|half an?|einer halben|(?:a )?quarter of an"
    rf"|(?:einer )?viertel|{_NUMBER})(?=\s|stunde)))"
)
_ENGLISH_UNITS = r"s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
_GERMAN_UNITS = r"sekunden?|minuten?|stunden?|tage?n?|wochen?"
_UNIT = rf"(?:{_ENGLISH_UNITS}|{_GERMAN_UNITS})(?![a-zäöüß])"
_SPAN = rf"{_COUNT.format('c')}\s*{_UNIT}(?:\s+and a half)?".replace("(?P<c>", "(?:")
_SPANS = rf"{_SPAN}(?:(?:\s*,)?\s*(?:(?:and|und)\s+)?{_SPAN})*"
_MONTHS = rf"(?:\d{{1,3}}|{_NUMBER})\s+(?:months?|years?|monate?n?|jahre?n?)(?!\w)"

PARTS = re.compile(
    rf"{_COUNT.format('count')}\s*(?P<unit>{_UNIT})(?P<half>\s+and a half)?", re.IGNORECASE
)
"""Pattern of one part of a duration: "2 hours", "an hour and a half"."""

MONTHS = re.compile(
    rf"(?P<count>\d{{1,3}}|{_NUMBER})\s+(?P<unit>months?|years?|monate?n?|jahre?n?)"
)
"""Pattern of a duration in months or years, whose length depends on the calendar."""

_CLOCK = (
    r"(?P<at>(?:at|um|by|around|gegen)\s+)?(?:"
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]?\d{2}|\d\d))?"
    r"(?:\s*(?P<half>[ap]\.?m\b\.?)|\s*(?P<oclock>uhr|o'?clock)\b(?:\s+(?P<past>[0-5]\d)\b)?)?"
    r"(?!\w|:\d)"
    r"|(?P<named>noon|midday|midnight|mittag|mitternacht)\b"
    r"|(?P<relative>half past|quarter past|quarter to|halb|viertel nach|viertel vor)\s+"
    rf"(?P<of>\d{{1,2}}|{_HOURS})\b(?:\s*(?P<half2>[ap])\.?m\b)?"
    # A number word counts only after "at" (a conditional on that group): "tomorrow one thing".
    rf"|(?P<hourword>(?(at)(?:{_HOURS})|(?!)))\b(?:\s*(?P<half3>[ap])\.?m\b|\s+o'?clock|\s+uhr)?"
    r")"
)
# Unambiguously a time of day, after "at" or by its form; a bare number is not enough.
_SURE_CLOCK = (
    r"(?=(?:at|um|by|around|gegen)\s|\d{1,2}:\d\d|\d{1,2}(?:[:.]\d\d)?\s*(?:[ap]\.?m\b|uhr|o'?clock)"
    r"|noon|midnight|midday|mitternacht|half past|quarter |viertel )" + _CLOCK
)
_PART = r"(?:morning|noon|afternoon|evening|night|früh|vormittag|mittag|nachmittag|abend|nacht)"
_MONTH_NAME = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli"
    r"|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)"
_DATED = (
    r"\d{4}-\d\d-\d\d(?!\d)"
    rf"|(?:the\s+)?{_ORDINAL}\s+(?:of\s+)?{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|\d{{1,2}}\.?\s+{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|{_MONTH_NAME}\s+(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)?(?![\d:])(?:,?\s+\d{{4}}\b)?"
    r"|\d{1,2}\.\s?\d{1,2}\.(?:\s?\d{4})?(?!\d)"
)
_NEAR = (
    rf"tonight|(?:today|tomorrow)(?:\s+{_PART})?\b|(?:the\s+)?day after tomorrow(?:\s+{_PART})?\b"
    rf"|this\s+{_PART}\b|heute(?:\s+{_PART})?\b|morgen(?:\s+{_PART})?\b|übermorgen(?:\s+{_PART})?\b"
)
_ON_DAY = rf"(?:(?:on|this|next|coming|am|nächsten|kommenden)\s+)(?:{WEEKDAY})\b(?:\s+{_PART}\b)?"
_ON_NTH = rf"on the\s+{_ORDINAL}\b|am\s+\d{{1,2}}\.(?!\d)"
# A bare weekday may belong to the reminder ("monday's meeting"), so it counts only at the beginning
# or end of a text.
_DAY = (
    rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY}"
    rf"|(?:{WEEKDAY})\b(?!')(?:\s+{_PART}\b)?)"
)
_SURE_DAY = rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY})"
_REPEATED = r"(?:every|each|alle|jede[nrs]?)"
_STEP = (
    rf"(?:other|second|third|first|last|half(?:\s+an?)?|quarter(?:\s+of an)?|{_ORDINAL}|\d{{1,3}}"
    rf"|{_NUMBER}|paar|halbe|erste[nrs]?|zweite[nrs]?|dritte[nrs]?|letzte[nrs]?)"
)
_STEP_UNIT = (
    r"(?:seconds?|minutes?|hours?|days?|weekdays?|weekends?|weeks?|fortnights?|months?|quarters?"
    rf"|years?|minuten?|stunden?|tage?n?|wochen?|monate?n?|jahre?n?|{WEEKDAY}|{_PART}s?)"
)
# Intervals that no cron expression repeats, such as "other day", are matched too, so that they are
# refused: otherwise "every other day at 9" would be taken for "at 9", once.
_EVERY = (
    rf"(?:{_REPEATED}\s+(?:single\s+)?)(?P<every>{_STEP}\s+{_STEP_UNIT}|hour|stunde|day|tag|weekday"
    r"|werktag|weekend|wochenende|week|woche|month|monat|morgen|minute|fortnight|quarter|quartal"
    rf"|year|jahr|{_PART}|{_ORDINAL}(?:\s+of the month)?"
    rf"|(?:{WEEKDAY})(?:(?:\s*,|\s+and|\s+und)+\s*(?:{WEEKDAY}))*)\b(?!\s+and a half)"
)
# After "weekly" and the like: another word, to which it may belong, as in "at 9 weekly meeting".
_NOUN = r"\s+(?!(?:on|at|to|that|about|of|please)\b)\w"
_ADVERB = (
    rf"(?P<every>daily|hourly|weekly|monthly|yearly(?!{_NOUN})|annually|täglich|stündlich"
    r"|wöchentlich|monatlich|jährlich|werktags"
    r"|(?:on\s+)?week(?:day|end)s|(?:on\s+)?(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b"
)
_ON = rf"(?:\s+(?:on|am)\s+(?P<on>(?:the\s+)?{_ORDINAL}|{WEEKDAY}))?"
_THEN = rf"(?:[\sT,]+(?:{_CLOCK}))?"

_IN = rf"(?:in|after)\s+(?P<counts>{_SPANS}|{_MONTHS})"
_FROM_NOW = rf"(?P<counts>{_SPANS}|{_MONTHS})\s+(?:from now|later)\b"

_TIME_FORMS = (
    rf"{_EVERY}{_ON}(?:[\s,]+(?:{_SURE_CLOCK}))?",
    rf"{_ADVERB}{_ON}(?:[\s,]+(?:{_SURE_CLOCK}))?",
    _IN,
    _FROM_NOW,
    rf"{_SURE_CLOCK},?\s+(?:{_EVERY}){_ON}",
    rf"{_SURE_CLOCK},?\s+(?!(?:dai|hour|week|month)ly{_NOUN})(?:{_ADVERB}){_ON}",
    rf"{_SURE_CLOCK}(?:,?\s+{_SURE_DAY})?",
)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_BEFORE, _AFTER = r"(?<![\w'.:/-])", r"(?![\w'/-])"


@dataclass(frozen=True, slots=True)
class _Forms:
    """Compiled patterns of times: at the beginning of a text, at its end, and those unambiguous
    enough to count anywhere."""

    leading: tuple[re.Pattern[str], ...]
    trailing: tuple[re.Pattern[str], ...]
    anywhere: tuple[re.Pattern[str], ...]


@cache
def _forms() -> _Forms:
    """Compile the patterns on first use: it takes a tenth of a second, and most processes never
    parse a time."""
    # A bare duration at the beginning of a text: "10m tea".
    bare = (
        rf"(?P<counts>{_SPANS}){_AFTER}(?!\s*(?:before|after|earlier|late|ago|vor|nach|into|of)\b)"
    )
    sure = (*_TIME_FORMS, rf"{_SURE_DAY}(?:[\s,]+(?:{_SURE_CLOCK}))?")
    forms = (*_TIME_FORMS, _DAY + _THEN)
    return _Forms(
        leading=(*(_compile(form + _AFTER) for form in forms), _compile(bare)),
        trailing=tuple(_compile(_BEFORE + form + "$") for form in forms),
        anywhere=tuple(_compile(_BEFORE + form + _AFTER) for form in sure),
    )


def count_of(word: str) -> float:
    """Return the value of a number before a unit: "2", "1.5", "half an", "einer"."""
    word = word.lower().strip()
    if word[0].isdigit():
        return float(word.replace(",", "."))
    if word.startswith(_HALVES):
        return 0.5
    if word.endswith("and a half"):
        return 1.5
    if word.removeprefix("a ").removeprefix("einer ").startswith(_QUARTERS):
        return 0.25
    return float(HOUR_WORDS.get(word) or _MORE_WORDS.get(word, 1.0))


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
_INTERVAL = re.compile(rf"(?P<step>{_STEP})\s+(?P<unit>{_STEP_UNIT})")
_STEPS = {"other": 2, "second": 2, "third": 3, "zweite": 2, "dritte": 3}
_NO_RECURRENCE = f"I cannot repeat that. What I can repeat is: {EXAMPLE_RECURRENCES}."
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
    found = _resolve(parts, now, zone)
    if not now < found.due <= now + MAX_DISTANCE:
        raise NotUnderstood("That time has passed, or is more than a year away.")
    return found, rest


def without_time(text: str) -> str | None:
    """Return a text without the time that `parse_time` finds in it, None if it finds none."""
    parts, rest = _split_time(text)
    return rest if parts else None


def _split_time(text: str) -> tuple[dict[str, str], str]:
    """Return the named groups of the time in a text, in lower case, and the rest of the text."""
    said = " ".join(text.split())
    match = _find_time(said) if len(text) <= MAX_TEXT_LENGTH else None
    if match is None:
        return {}, said
    before, after = said[: match.start()], said[match.end() :]
    parts = {name: part.lower() for name, part in match.groupdict().items() if part}
    if parts.get("day") and not _has_clock(parts):
        before, after = _with_other(before, after, parts, "clock")
    elif _has_clock(parts) and not parts.get("day") and not parts.get("every"):
        before, after = _with_other(before, after, parts, "day")
    return parts, _clean(before, after)


def _find_time(said: str) -> re.Match[str] | None:
    """Find the time in a text: at its beginning, else at its end, else anywhere in it.

    Of several matches in the same place the leftmost counts, then the longest. None also if the
    words before it are about the past ("yesterday at 5").
    """
    end = _TAIL.search(said)
    body = said[: end.start()] if end else said
    places: tuple[tuple[tuple[re.Pattern[str], ...], Callable[..., re.Match[str] | None]], ...] = (
        (_forms().leading, lambda pattern: pattern.match(said)),
        (_forms().trailing, lambda pattern: pattern.search(body)),
        (_forms().anywhere, lambda pattern: pattern.search(said)),
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
    for pattern in _forms().trailing:
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
        start = _clock_of(parts, "")[0] if _has_clock(parts) else local.time()
        rule = f"{start.minute} {_cron_field(start.hour, 0, 23, step)} * * *"
    else:
        part = every if every in PARTS_OF_DAY else ""
        clock, _ = _clock_of(parts, part)
        rule = f"{clock.minute} {clock.hour} {_days_of(every, step, parts.get('on', ''), local)}"
    return ResolvedTime(Timetable(rule, zone).after(now), rule)


def _interval(every: str) -> tuple[str, int]:
    """Return the unit of a recurrence and the number of units between two times: "other hour" is
    ("hour", 2). Raises NotUnderstood for an interval that cron cannot express."""
    match = _INTERVAL.fullmatch(every)
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
