"""Questions about dates: "how many days until christmas", "is 2028 a leap year"."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date

from llm.reading.days import day_in, month_of, shift_day
from llm.reading.question_text import forms, found_in

_COUNT = r"(?:\d{1,5}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_SPAN = rf"(?P<span>{_COUNT} (?:day|week|fortnight|month|year)s?)"
_DAY = r"(?P<day>[\w äöü'./,-]{2,40}?)"
_IS = r"(?:is|was|will be|does|did|will)"
_DATE = r"(?:date|day|weekday|day of the week|week day)"
_TODAY = forms(
    rf"(?:(?:what|which)(?:'?s| is)? ?)?(?:the |today'?s )?(?:current )?{_DATE}"
    r"(?: is it| is today| today| is it today| now| is this)?",
    rf"what(?:'?s| is) (?:today|today'?s date|the {_DATE} today|the {_DATE})",
    r"welche[rsn]? (?:tag|datum|wochentag) (?:ist|haben wir) heute|der wievielte ist heute",
    r"was (?:ist|für ein tag ist|für einen tag haben wir) heute(?: für ein tag)?",
)
_PART = forms(
    r"(?:what|which) (?P<part>year|month|(?:calendar )?week(?: number)?|week of the year)"
    r" (?:is it|is this|are we in|do we have)(?: now| today)?",
    r"what(?:'?s| is) the (?:current )?(?P<part>year|month|week number)",
)
_DATE_OF = forms(
    rf"(?:on )?(?:what|which) {_DATE} {_IS} (?:it )?(?:on )?{_DAY}"
    r"(?: (?:fall|be)(?: on)?)?(?: (?:this|that) year)?",
    rf"(?:on )?(?:what|which) {_DATE} {_DAY} (?:is|was|falls)(?: on)?",
    rf"(?:what(?:'?s| is| was) )?(?:the )?{_DATE}(?: of)? {_DAY}",
    rf"what(?:'?s| is| was) {_DAY}'s {_DATE}",
    rf"when(?:'?s| is| was| will be) {_DAY}(?: this year)?",
    rf"(?:wann ist|welcher (?:wochen)?tag ist(?: der| am)?) {_DAY}",
)
_AFTER = forms(
    rf"what(?:'?s| is| was| will)? (?:the )?{_DATE} (?:is|was|will be|will it be|is it|was it)?"
    rf" ?(?:in )?{_SPAN}(?: from (?:now|today)| later| ahead)?(?P<ago> ago)?",
    rf"(?:what(?:'?s| is| was) (?:the )?{_DATE} |what(?:'?s| is) )in {_SPAN}",
    rf"(?:what(?:'?s| is) )?(?:the {_DATE} )?{_SPAN} from (?:now|today)",
)
_FROM_DAY = forms(
    rf"(?:(?:what|which)(?:'?s| is)? (?:the )?(?:{_DATE} )?(?:is |was |will be )?)?{_SPAN}"
    rf" (?P<sign>after|before|from) {_DAY}",
)
_UNIT = r"(?P<unit>days|weeks|sleeps)"
_UNTIL = forms(
    rf"(?:how many )?{_UNIT}(?: (?:are there|are left|is it|left|remain|to go|do we have))?"
    rf" (?:until|till|til|'til|to|before) {_DAY}",
    rf"how long(?: is it| do we have)? (?:until|till|til|to|before) {_DAY}",
    rf"how far away is {_DAY}",
    rf"wie ?viele tage (?:sind es )?(?:noch )?bis(?: zu[rm])? {_DAY}",
)
_SINCE = forms(
    rf"(?:how many )?{_UNIT} (?:(?:is it|has it been|have passed|are there) )?since {_DAY}",
    rf"how many {_UNIT} ago was {_DAY}",
    rf"how long (?:is it|has it been) since {_DAY}|how long ago was (?P<past>[\w './,-]{{2,40}})",
)
_BETWEEN = forms(
    rf"(?:how many )?{_UNIT}(?: are| is)?(?: there)? (?:between|from) {_DAY}"
    r" (?:and|to|until|till) (?P<second>[\w äöü'./,-]{2,40}?)",
)
_LEAP = forms(
    r"(?:is|was|will) (?:the year )?(?P<year>\d{4}|it|this|this year) (?:be )?(?:a )?leap ?year"
    r"(?: or not)?",
    r"ist (?P<year>\d{4}) ein schaltjahr",
)
_NEXT_LEAP = forms(r"(?:when|what) (?:is|will be|year is) the next leap year")
_MONTH_LENGTH = forms(
    r"how many days (?:are |does |are there )?(?:in )?(?P<month>[a-z]{3,9})(?: have| has)?"
    r"(?: (?:in )?(?P<year>\d{4}))?",
)
_YEAR_LENGTH = forms(r"how many days (?:are |does |are there )?(?:in )?(?P<year>\d{4})(?: have)?")
_LEFT = forms(
    r"how many (?P<unit>days|weeks) (?:are )?(?:left|remaining|remain) (?:in|of) (?:the|this) year"
)
_AGE = forms(
    r"how old (?:am i|is (?:someone|somebody|a person)|would i be)(?: (?:if|who))?(?: i)?"
    rf"(?: was| were| am| is)? born (?:on |in )?{_DAY}",
)


def date_answer(asked: str, today: date) -> str | None:
    """Return the answer to a question about dates, asked on `today`; None for any other one."""
    for answer in _ANSWERS:
        if said := answer(asked, today):
            return said
    return None


def day_in_words(day: date) -> str:
    """Return a day in words: "Sunday 22 November 2026"."""
    return f"{day:%A} {day.day} {day:%B} {day.year}"


def _today(asked: str, today: date) -> str | None:
    if found_in(_TODAY, asked) is not None:
        return f"Today is {day_in_words(today)}."
    found = found_in(_PART, asked)
    if not found:
        return None
    part = found["part"]
    if part == "year":
        return f"It is {today.year}."
    if part == "month":
        return f"It is {today:%B} {today.year}."
    year, week, _ = today.isocalendar()
    return f"It is week {week} of {year}."


def _after(asked: str, today: date) -> str | None:
    if found := found_in(_FROM_DAY, asked):
        start = day_in(found["day"], today)
        sign = -1 if found["sign"] == "before" else 1
        day = shift_day(start, found["span"], sign) if start else None
        word = "before" if sign < 0 else "after"
        return (
            f"{found['span']} {word} {day_in_words(start)} is {day_in_words(day)}."
            if start and day
            else None
        )
    found = found_in(_AFTER, asked)
    if not found:
        return None
    ago = found.get("ago")
    day = shift_day(today, found["span"], -1 if ago else 1)
    if not day:
        return None
    if ago:
        return f"{found['span']} ago it was {day_in_words(day)}."
    return f"In {found['span']} it is {day_in_words(day)}."


def _until(asked: str, today: date) -> str | None:
    found = found_in(_UNTIL, asked)
    day = day_in(found["day"], today) if found else None
    if not found or day is None or found["day"] in ("now", "today"):
        return None
    days = (day - today).days
    if days < 0:
        return f"{day_in_words(day)} was {_days(-days)} ago."
    if days == 0:
        return f"That is today, {day_in_words(day)}."
    return f"{_weeks(days, found.get('unit', ''))} until {day_in_words(day)}."


def _since(asked: str, today: date) -> str | None:
    found = found_in(_SINCE, asked)
    name = (found.get("day") or found.get("past", "")) if found else ""
    day = day_in(name, today, past=True) if name else None
    if not found or day is None or day > today:
        return None
    return f"{_weeks((today - day).days, found.get('unit', ''))} since {day_in_words(day)}."


def _between(asked: str, today: date) -> str | None:
    found = found_in(_BETWEEN, asked)
    first, second = (day_in(found[key], today) if found else None for key in ("day", "second"))
    if not found or not first or not second:
        return None
    days = abs((second - first).days)
    return f"{_weeks(days, found['unit'])} from {day_in_words(first)} to {day_in_words(second)}."


def _leap(asked: str, today: date) -> str | None:
    if found_in(_NEXT_LEAP, asked) is not None:
        year = next(y for y in range(today.year + 1, today.year + 9) if calendar.isleap(y))
        return f"The next leap year is {year}."
    found = found_in(_LEAP, asked)
    if not found:
        return None
    named = found["year"]
    year = int(named) if named.isdecimal() else today.year
    if calendar.isleap(year):
        return f"Yes, {year} is a leap year."
    return f"No, {year} is no leap year."


def _length(asked: str, today: date) -> str | None:
    if found := found_in(_YEAR_LENGTH, asked):
        year = int(found["year"])
        return f"{year} has {366 if calendar.isleap(year) else 365} days."
    if found := found_in(_LEFT, asked):
        days = (date(today.year, 12, 31) - today).days
        return f"{_weeks(days, found['unit'])} are left in {today.year}."
    found = found_in(_MONTH_LENGTH, asked)
    month = month_of(found["month"]) if found and len(found["month"]) > 3 else None
    if not found or month is None:
        return None
    year = int(found["year"] or today.year)
    if not 1 <= year <= 9999:
        return None
    return f"{calendar.month_name[month]} {year} has {calendar.monthrange(year, month)[1]} days."


def _age(asked: str, today: date) -> str | None:
    found = found_in(_AGE, asked)
    born = day_in(found["day"], today, past=True) if found else None
    if born is None or born > today or str(born.year) not in asked:
        return None
    years = today.year - born.year - ((today.month, today.day) < (born.month, born.day))
    return f"Somebody born on {day_in_words(born)} is {years} years old today."


def _date_of(asked: str, today: date) -> str | None:
    """Return the date or weekday of a named or written day."""
    found = found_in(_DATE_OF, asked)
    day = day_in(found["day"], today) if found else None
    if not found or day is None:
        return None
    name = re.sub(r"^the ", "", found["day"].strip())
    verb = "was" if day < today else "is"
    if name in ("today", "tomorrow", "yesterday"):
        return f"{name.capitalize()} {verb} {day_in_words(day)}."
    if re.search(r"\d", re.sub(r" \d{4}$", "", name)):
        return f"{day.isoformat()} {verb} a {day:%A}."
    return f"{name[:1].upper() + name[1:]} {verb} on {day_in_words(day)}."


def _days(count: int) -> str:
    return f"{count} day{'' if count == 1 else 's'}"


def _weeks(days: int, unit: str) -> str:
    if unit != "weeks":
        return _days(days)
    weeks, rest = divmod(days, 7)
    text = f"{weeks} week{'' if weeks == 1 else 's'}"
    return f"{text} and {_days(rest)}" if rest else text


_ANSWERS: tuple[Callable[[str, date], str | None], ...] = (
    _today,
    _leap,
    _length,
    _until,
    _since,
    _between,
    _age,
    _after,
    _date_of,
)
