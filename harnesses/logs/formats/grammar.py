"""Log formats as data: a pattern for the time, and one for each kind of line.

The module of a format is a table of patterns, by which this module parses single lines, without
regard to files, earlier lines or time zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, time

from storage.chat_log.event import Event, EventType

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?)?"
DATE = r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
NICK = r"[~&@%+! ]?(?P<nick>[^\s<>]+)"  # after the channel status that clients write before it
MASK = r"(?:\S+!)?(?P<user>[^\s@()\[\]<>]*)@(?P<host>[^\s()\[\]<>]*)"
CHANNEL = r"(?P<channel>[#&!+][^\s,]*)"
_WRITTEN_DAY = re.compile(
    r"\b(?P<month>[A-Za-z]{3}) +(?P<day>\d{1,2}),? +(?:\d\d:\d\d(?::\d\d)? +)?(?P<year>\d{4})\b"
)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The time that a line gives: `clock` is None if it has no time, `day` if it has no date.

    `year` is None if the date has none; `day` is then in a leap year. `utc` tells that the time is
    in UTC, whatever the zone of the file, and `has_seconds` that it has seconds.
    """

    clock: time | None = None
    day: date | None = None
    year: int | None = None
    utc: bool = False
    has_seconds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """An event as parsed from one line; `channel` is "" if the line names none."""

    type: EventType
    when: Timestamp
    nick: str
    text: str = ""
    user: str = ""
    host: str = ""
    target: str = ""
    channel: str = ""


@dataclass(frozen=True, slots=True)
class DayChange:
    """A line that gives the day of those after it."""

    date: date


@dataclass(frozen=True, slots=True)
class Ignored:
    """A known line that is no event: a blank one, or a remark of the client."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A parsed line that must not be imported, with the reason."""

    reason: str


Parsed = ParsedLine | DayChange | Ignored | Refused | Event | None
"""The result of parsing a line: an Event if the format has all of its fields, None if the line is
not of the format."""


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A kind of line: its event type, None for noise, and the pattern of what follows the time."""

    type: EventType | None
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Format:
    """A log format: its name, and the parser of one line, decoded and without line end."""

    name: str
    parse: Callable[[str], Parsed]


def kind(type: EventType | None, pattern: str) -> LinePattern:
    """Return a kind of line; the pattern must match the whole rest of the line."""
    return LinePattern(type, re.compile(pattern, re.DOTALL))


def reader(
    stamp: str, kinds: Sequence[LinePattern], *, days: str = "", untimed: Sequence[LinePattern] = ()
) -> Callable[[str], Parsed]:
    """Return a parser of lines.

    `stamp` is the pattern of the time and of the separator after it. `kinds` are tried in order, so
    the specific ones come before the general ones. `days` is the pattern for the beginning of a
    line that gives the day, `untimed` are the kinds of lines without a time.
    """
    timed = re.compile(rf"{stamp}(?P<rest>.*)", re.DOTALL)
    new_day = re.compile(days) if days else None

    def parse(line: str) -> Parsed:
        if not line.strip():
            return Ignored()
        if new_day and new_day.match(line):
            day = written_day(line)
            return DayChange(day) if day else Ignored()
        if found := timed.fullmatch(line):
            when = when_of(found)
            return _kind_of(found["rest"], kinds, when) if when else None
        return _kind_of(line, untimed, Timestamp())

    return parse


def written_day(line: str) -> date | None:
    """Return the date in a line with the month as a word, as "Mon Jan 02 15:04:05 2006"."""
    found = _WRITTEN_DAY.search(line)
    if not found or found["month"].lower() not in MONTHS:
        return None
    return _date(int(found["year"]), MONTHS.index(found["month"].lower()) + 1, int(found["day"]))


def when_of(found: re.Match[str]) -> Timestamp | None:
    """Return the time in the groups of a match, None if it is invalid."""
    groups = found.groupdict()
    day = year = None
    if groups.get("day"):
        month = groups["month"].lower()
        number = MONTHS.index(month) + 1 if month in MONTHS else _number(month)
        year = int(groups["year"]) if groups.get("year") else None
        day = _date(year or 2000, number, int(groups["day"]))
        if day is None:
            return None
    micros = int((groups.get("fraction") or "0").ljust(6, "0"))
    try:
        second = min(int(groups["second"] or 0), 59)  # a leap second has the number 60
        clock = time(int(groups["hour"]), int(groups["minute"]), second, micros)
    except ValueError:
        return None
    return Timestamp(clock, day, year, bool(groups.get("utc")), groups["second"] is not None)


def _kind_of(rest: str, kinds: Sequence[LinePattern], when: Timestamp) -> Parsed:
    for each in kinds:
        if found := each.pattern.fullmatch(rest):
            return _entry(each.type, found.groupdict(), when) if each.type else Ignored()
    return None


def _entry(type: EventType, groups: dict[str, str | None], when: Timestamp) -> ParsedLine:
    def part(name: str) -> str:
        return groups.get(name) or ""

    return ParsedLine(
        type=type,
        when=when,
        nick="".join(part("nick").split()),
        text=part("text"),
        user=part("user"),
        host=part("host"),
        target=part("target"),
        channel=part("channel"),
    )


def _number(month: str) -> int:
    return int(month) if month.isdecimal() else 0


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
