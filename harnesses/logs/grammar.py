"""Log formats as data: a pattern for the time, and one for each kind of line.

A format is a table of patterns, by which this module parses single lines, without regard to files,
earlier lines or time zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, time

from storage.chat_log.event import Event, EventType

CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6})\d*)?)?"
DATE = r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
WHO = r"(?P<nick>\S+)"
SPEAKER = r"[~&@%+! ]?(?P<nick>[^\s<>]+)"  # after the channel status that clients write before it
TARGET = r"(?P<target>\S+)"
TEXT = r"(?P<text>.*)"
MASK = r"(?:\S+!)?(?P<user>[^\s@()\[\]<>]*)@(?P<host>[^\s()\[\]<>]*)"
CHANNEL = r"(?P<channel>[#&!+][^\s,]*)"
REASON = r"(?: \((?P<text>.*)\))?"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
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

Kinds = Sequence[tuple[str, str]]
"""The kinds of lines: the event type, "" for noise, and the pattern of all that follows the
time."""


@dataclass(frozen=True, slots=True)
class Format:
    """A log format: its name, and the parser of one line, decoded and without line end."""

    name: str
    parse: Callable[[str], Parsed]


def text_format(
    name: str, stamp: str, kinds: Kinds, *, days: str = "", untimed: Kinds = ()
) -> Format:
    """Return a format of lines of text.

    `stamp` is the pattern of the time and of the separator after it. `kinds` are tried in order, so
    the specific ones come before the general ones. `days` is the pattern for the beginning of a
    line that gives the day, `untimed` are the kinds of lines without a time.
    """
    timed = re.compile(rf"{stamp}(?P<rest>.*)", re.DOTALL)
    new_day = re.compile(days) if days else None
    with_time, without_time = (
        [(EventType(type) if type else None, re.compile(each, re.DOTALL)) for type, each in table]
        for table in (kinds, untimed)
    )

    def parse(line: str) -> Parsed:
        if not line.strip():
            return Ignored()
        if new_day and new_day.match(line):
            written = _WRITTEN_DAY.search(line)
            day = date_of(written["year"], written["month"], written["day"]) if written else None
            return DayChange(day) if day else Ignored()
        rest, table, when = line, without_time, Timestamp()
        if found := timed.fullmatch(line):
            stated = when_of(found)
            if stated is None:
                return None
            rest, table, when = found["rest"], with_time, stated
        for type, pattern in table:
            if match := pattern.fullmatch(rest):
                parts = {key: part or "" for key, part in match.groupdict().items()}
                parts["nick"] = "".join(parts.get("nick", "").split())
                return ParsedLine(type=type, when=when, **parts) if type else Ignored()
        return None

    return Format(name, parse)


def when_of(found: re.Match[str]) -> Timestamp | None:
    """Return the time in the groups of a match, None if it is invalid."""
    groups = found.groupdict()
    day = None
    year = int(groups["year"]) if groups.get("year") else None
    if groups.get("day"):
        day = date_of(year or 2000, groups["month"], groups["day"])
        if day is None:
            return None
    micros = int((groups.get("fraction") or "0").ljust(6, "0"))
    try:
        second = min(int(groups["second"] or 0), 59)  # a leap second has the number 60
        clock = time(int(groups["hour"]), int(groups["minute"]), second, micros)
    except ValueError:
        return None
    return Timestamp(clock, day, year, bool(groups.get("utc")), groups["second"] is not None)


def date_of(year: str | int, month: str, day: str) -> date | None:
    """Return a date whose month is a number or an English abbreviation, None if there is none."""
    word = month.lower()
    try:
        return date(int(year), _MONTHS.index(word) + 1 if word in _MONTHS else int(word), int(day))
    except ValueError:
        return None
