"""Dates in natural language, English and German: "christmas", "march 12th", "3 weeks"."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_GERMAN = ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTH = r"(?P<month>[a-zä]{3,9})\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_YEAR = r"(?P<year>\d{4})"
_DATES = tuple(
    re.compile(form)
    for form in (
        rf"{_YEAR}[-/](?P<number>\d{{1,2}})[-/](?P<day>\d{{1,2}})",
        rf"(?P<day>\d{{1,2}})\.\s?(?P<number>\d{{1,2}})\.\s?{_YEAR}?",
        rf"(?:the )?{_DAY} (?:of )?{_MONTH}(?:,? {_YEAR})?",
        rf"{_MONTH} (?:the )?{_DAY}(?:,? {_YEAR})?",
    )
)
_SPAN = re.compile(
    r"(?P<count>\d{1,5}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eine[mrn]?)"
    r" (?P<unit>days?|weeks?|fortnights?|months?|years?|tage?n?|wochen?|monate?n?|jahre?n?)"
)
_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: number for number, word in enumerate(_COUNTS, 1)}
_OF_YEAR = re.compile(r"(?P<name>[a-z' ]+?)(?: (?:of |in )?(?P<year>\d{4}))?")
_FIRST_YEAR, _LAST_YEAR = 1, 9998  # supported years

_FIXED: Mapping[str, tuple[int, int]] = {
    "christmas": (12, 25),
    "christmas day": (12, 25),
    "xmas": (12, 25),
    "weihnachten": (12, 25),
    "christmas eve": (12, 24),
    "heiligabend": (12, 24),
    "boxing day": (12, 26),
    "new year": (1, 1),
    "new years": (1, 1),
    "new year's": (1, 1),
    "new years day": (1, 1),
    "new year's day": (1, 1),
    "neujahr": (1, 1),
    "new year's eve": (12, 31),
    "new years eve": (12, 31),
    "silvester": (12, 31),
    "halloween": (10, 31),
    "valentine's day": (2, 14),
    "valentines day": (2, 14),
    "valentine's": (2, 14),
    "april fools": (4, 1),
    "april fools day": (4, 1),
    "april fools' day": (4, 1),
    "st patrick's day": (3, 17),
    "independence day": (7, 4),
    "pi day": (3, 14),
}


def easter(year: int) -> date:
    """Return Easter Sunday of a year in the Gregorian calendar.

    The anonymous Gregorian algorithm ("Nature", 20 April 1876), also named after Meeus, Jones and
    Butcher.
    """
    century, rest = divmod(year, 100)
    golden = year % 19
    skipped = century - century // 4 - (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + skipped + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def _thanksgiving(year: int) -> date:
    """Return Thanksgiving of the United States, the fourth Thursday of November."""
    first = date(year, 11, 1)
    return first + timedelta(days=(3 - first.weekday()) % 7 + 21)


_MOVING: Mapping[str, Callable[[int], date]] = {
    "easter": easter,
    "easter sunday": easter,
    "ostern": easter,
    "good friday": lambda year: easter(year) - timedelta(days=2),
    "karfreitag": lambda year: easter(year) - timedelta(days=2),
    "easter monday": lambda year: easter(year) + timedelta(days=1),
    "pentecost": lambda year: easter(year) + timedelta(days=49),
    "pfingsten": lambda year: easter(year) + timedelta(days=49),
    "ascension day": lambda year: easter(year) + timedelta(days=39),
    "thanksgiving": _thanksgiving,
    "black friday": lambda year: _thanksgiving(year) + timedelta(days=1),
}


def day_in(text: str, today: date, *, past: bool = False) -> date | None:
    """Return the date that a whole lower-case text names, None if it names none.

    Without a year it is the next such date or, with `past`, the last one. `today` itself counts,
    except for a weekday: "monday" on a Monday is a week away.
    """
    text = re.sub(r"^(?:on |the day |this |am )", "", text.strip()).strip()
    near = {
        "today": 0,
        "now": 0,
        "heute": 0,
        "tomorrow": 1,
        "morgen": 1,
        "yesterday": -1,
        "gestern": -1,
        "the day after tomorrow": 2,
        "day after tomorrow": 2,
        "übermorgen": 2,
        "the day before yesterday": -2,
        "vorgestern": -2,
    }
    if text in near:
        return today + timedelta(days=near[text])
    for form in _DATES:
        if match := form.fullmatch(text):
            return _written_day(match, today, past)
    return _named_day(text, today, past)


def shift_day(day: date, span: str, sign: int = 1) -> date | None:
    """Return `day` shifted by a span such as "3 weeks" or "a month"; `sign` -1 goes back.

    Months and years keep the day of the month, at most the last one of the month. None if the text
    is not a span or the result is not a valid date.
    """
    match = _SPAN.fullmatch(span.strip())
    if not match:
        return None
    word = match["count"]
    count = sign * (int(word) if word.isdecimal() else _NUMBERS.get(word, 1))
    unit = match["unit"][0]
    try:
        if unit in "mjy":
            months = count * (1 if unit == "m" else 12)
            year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
            last = calendar.monthrange(year, month + 1)[1]
            return date(year, month + 1, min(day.day, last))
        return day + timedelta(days=count * {"d": 1, "t": 1, "w": 7, "f": 14}[unit])
    except (ValueError, OverflowError, calendar.IllegalMonthError):
        return None


def month_of(name: str) -> int | None:
    """Return the number of a month, 1 to 12, by its English or German name; English names may be
    abbreviated to three or four letters. None for any other text."""
    name = name.lower().replace("ä", "a").rstrip(".")
    german = {"januar": 1, "februar": 2, "marz": 3, "mai": 5, "juni": 6, "juli": 7, "oktober": 10}
    if name in german or name == "dezember":
        return german.get(name, 12)
    found = [number for number, month in enumerate(_MONTHS, 1) if month == name]
    short = [n for n, month in enumerate(_MONTHS, 1) if name in (month[:3], month[:4])]
    return next(iter(found or short), None)


def weekday_of(name: str) -> int | None:
    """Return the number of a weekday, 0 for Monday, by its English or German name; English names
    may be abbreviated to three letters. None for any other text."""
    name = name.lower().rstrip(".")
    for names in (WEEKDAYS, _GERMAN):
        if name in names:
            return names.index(name)
    short = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    return short.index(name) if name in short else None


def _written_day(match: re.Match[str], today: date, past: bool) -> date | None:
    found = match.groupdict()
    month = int(found["number"]) if found.get("number") else month_of(found.get("month") or "")
    if month is None:
        return None
    day = int(found["day"])
    try:
        if found["year"]:
            return date(int(found["year"]), month, day)
        return _nearest(lambda year: date(year, month, day), today, past)
    except ValueError:
        return None


def _named_day(text: str, today: date, past: bool) -> date | None:
    match = _OF_YEAR.fullmatch(text)
    if not match:
        return None
    name, year = re.sub(r"^(?:next|last|the) ", "", match["name"].strip()), match["year"]
    if (weekday := weekday_of(name)) is not None and not year:
        ahead = (weekday - today.weekday()) % 7 or 7
        return today + timedelta(days=ahead - 7 * past if ahead < 7 or not past else -7)
    if name in _FIXED:
        month, day = _FIXED[name]
        of_year: Callable[[int], date] = lambda year: date(year, month, day)  # noqa: E731
    elif name in _MOVING:
        of_year = _MOVING[name]
    elif name in ("end of year", "end of the year", "year's end", "year end"):
        return date(today.year, 12, 31)
    else:
        return None
    if year:
        return of_year(int(year)) if _FIRST_YEAR <= int(year) <= _LAST_YEAR else None
    return _nearest(of_year, today, past)


def _nearest(of_year: Callable[[int], date], today: date, past: bool) -> date | None:
    """Return the next date of an annual day from `today` on or, with `past`, the last one."""
    # Leap days are up to eight years apart, around a century that is not a leap year (1896, 1904).
    years = range(today.year, today.year + 9) if not past else range(today.year, today.year - 9, -1)
    for year in years:
        try:
            day = of_year(year)
        except ValueError:
            continue
        if day >= today if not past else day <= today:
            return day
    return None
