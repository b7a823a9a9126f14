"""The known log formats, by name, and their detection.

A format is a table of patterns: one for the time, and one for each kind of line. By these single
lines are parsed, without regard to files, earlier lines or time zones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, time
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

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
_Name = Annotated[str, Field(min_length=1, max_length=512)]


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


_IN_BRACKETS = r"(?: \[(?P<text>.*)\])?"

IRSSI = text_format(
    "irssi",
    rf"(?:{DATE}[ T])?{CLOCK} ",
    [
        ("PRIVMSG", rf"<{SPEAKER}> ?{TEXT}"),
        ("JOIN", rf"-!- {WHO} \[{MASK}\] has joined {CHANNEL}"),
        ("PART", rf"-!- {WHO} \[{MASK}\] has left {CHANNEL}{_IN_BRACKETS}"),
        ("QUIT", rf"-!- {WHO} \[{MASK}\] has quit{_IN_BRACKETS}"),
        ("NICK", rf"-!- {WHO} is now known as {TARGET}"),
        ("KICK", rf"-!- {TARGET} was kicked from {CHANNEL} by {WHO}{_IN_BRACKETS}"),
        ("MODE", rf"-!- (?:Server)?[mM]ode/{CHANNEL} \[(?P<text>[^\]]*)\] by {WHO}"),
        ("TOPIC", rf"-!- {WHO} changed the topic of {CHANNEL} to: {TEXT}"),
        ("TOPIC", rf"-!- Topic unset by {WHO} on {CHANNEL}"),
        ("ACTION", rf" ?\* {WHO} ?{TEXT}"),
        ("NOTICE", rf"-(?P<nick>[^\s!:(]+)(?:[:(][^\s-]*)?- {TEXT}"),
        (
            "",
            r"-!- (?:You're now known as|Irssi:|Netsplit|Topic|Home page|Channel |\[|Keepalive"
            r"|[#&!+]\S+: |[#&!+]\S+ +$|There are |Mode |mode/\S+ \[.*\]$).*",
        ),
    ],
    days="--- (?:Log opened|Day changed) ",
    untimed=[("", "--- Log closed .*")],
)

# A real name may stand before the mask.
_NAMED = rf"{WHO}(?: \([^()\t]*\))? \({MASK}\)"
WEECHAT = text_format(
    "weechat",
    rf"{DATE}[ T]{CLOCK}(?P<utc>Z)?\t",
    [
        ("JOIN", rf"-->\t{_NAMED} has joined {CHANNEL}"),
        ("PART", rf"<--\t{_NAMED} has left {CHANNEL}{REASON}"),
        ("QUIT", rf"<--\t{_NAMED} has quit{REASON}"),
        ("KICK", rf"<--\t{WHO} has kicked {TARGET}{REASON}"),
        ("NICK", rf"--\t{WHO} is now known as {TARGET}"),
        ("MODE", rf"--\tMode {CHANNEL} \[(?P<text>[^\]]*)\] by {WHO}"),
        ("TOPIC", rf'--\t{WHO} has changed topic for {CHANNEL}(?: from ".*?")? to "(?P<text>.*)"'),
        ("TOPIC", rf"--\t{WHO} has unset topic for {CHANNEL}.*"),
        ("NOTICE", rf"--\tNotice\((?P<nick>[^\s)]+)\)(?: -> \S+)?: {TEXT}"),
        ("ACTION", rf" \*\t{WHO} ?{TEXT}"),
        ("", r"(?:--|-->|<--|=!=|\s*)\t.*"),
        ("PRIVMSG", rf"[~&@%+!]?{WHO}\t{TEXT}"),
    ],
)

# Actions look like status messages (`*\tnick has quit (why)`): a line that fits a status message is
# parsed as one.
_STARRED = rf"\*\s{WHO}"
HEXCHAT = text_format(
    "hexchat",
    rf"(?P<month>[A-Z][a-z]{{2}}) (?P<day>\d\d) {CLOCK} ",
    [
        ("PRIVMSG", rf"<{SPEAKER}>(?:\t| )?{TEXT}"),
        ("JOIN", rf"{_STARRED} \({MASK}\) has joined(?: {CHANNEL})?"),
        ("PART", rf"{_STARRED} \({MASK}\) has left {CHANNEL}{REASON}"),
        ("QUIT", rf"{_STARRED} has quit{REASON}"),
        ("NICK", rf"{_STARRED} is now known as {TARGET}"),
        ("KICK", rf"{_STARRED} has kicked {TARGET} from {CHANNEL}{REASON}"),
        ("TOPIC", rf"{_STARRED} has changed the topic to: {TEXT}"),
        ("MODE", rf"{_STARRED} sets modes? (?P<text>[+-]\S.*)"),
        (
            "MODE",
            rf"{_STARRED} (?P<text>(?:gives|removes)"
            r" (?:channel operator status|voice) (?:to|from) \S+)",
        ),
        ("NOTICE", rf"-(?P<nick>[^\s/]+)(?:/\S*)?-(?:\t| ){TEXT}"),
        (
            "",
            r"\*\s(?:Now talking on|Topic for|Topic of|Channel|You are now known as|You have"
            r"|Disconnected|Looking up|Connecting|Connected|Cannot join|[#&!+]\S+ :?).*",
        ),
        ("ACTION", rf"{_STARRED} ?{TEXT}"),
    ],
    days=r"\*{4} BEGIN LOGGING AT ",  # the year is there only
    untimed=[("", r"\*{4} ENDING LOGGING AT .*")],
)

_THREE_STARS = rf"\*\*\* {WHO}(?: <{MASK}>)?"
LIMNORIA = text_format(
    "limnoria",
    rf"\[?{DATE}T{CLOCK}(?P<utc>Z)?\]? +",
    [
        ("PRIVMSG", rf"<{SPEAKER}> ?{TEXT}"),
        ("JOIN", rf"{_THREE_STARS} has joined {CHANNEL}"),
        ("PART", rf"{_THREE_STARS} has left {CHANNEL}{REASON}"),
        ("QUIT", rf"{_THREE_STARS} has quit(?: IRC)?{REASON}"),
        ("NICK", rf"\*\*\* {WHO} is now known as {TARGET}"),
        ("KICK", rf"\*\*\* {TARGET} was kicked by {WHO}{REASON}"),
        ("TOPIC", rf'\*\*\* {WHO} changes topic to "(?P<text>.*)"'),
        ("MODE", rf"\*\*\* {WHO} sets mode: {TEXT}"),
        ("ACTION", rf"\* (?P<nick>[^\s*]\S*) ?{TEXT}"),
        ("NOTICE", rf"-(?P<nick>[^\s-]\S*?)- {TEXT}"),
    ],
)

# Also what ZNC's log module writes, and our own export as text.
ENERGYMECH = text_format(
    "energymech",
    rf"\[(?:{DATE}[ T])?{CLOCK}\] ",
    [
        ("PRIVMSG", rf"<{SPEAKER}> ?{TEXT}"),
        ("JOIN", rf"\*\*\* Joins: {WHO} \({MASK}\)"),
        ("PART", rf"\*\*\* Parts: {WHO} \({MASK}\){REASON}"),
        ("QUIT", rf"\*\*\* Quits: {WHO} \({MASK}\){REASON}"),
        ("NICK", rf"\*\*\* {WHO} is now known as {TARGET}"),
        ("KICK", rf"\*\*\* {TARGET} was kicked by {WHO}{REASON}"),
        ("TOPIC", rf"\*\*\* {WHO} changes topic (?:of {CHANNEL} )?to '(?P<text>.*)'"),
        ("MODE", rf"\*\*\* {WHO} sets mode: {TEXT}"),
        ("ACTION", rf"\* (?P<nick>[^\s*]\S*) ?{TEXT}"),
        ("NOTICE", rf"-(?P<nick>[^\s:]+?)(?:[:!]\S*)?- {TEXT}"),
        ("", r"(?:Connected to|Disconnected from|Broadcast:|\*\*\* You).*"),
    ],
)

_MASKED = rf"{WHO} \({MASK}\)"
_BY = r"(?P<nick>[^\s!]+)(?:!(?P<user>[^\s@]*)@(?P<host>\S*?))?"
EGGDROP = text_format(
    "eggdrop",
    rf"\[{CLOCK}\] ",
    [
        ("PRIVMSG", rf"<{SPEAKER}> ?{TEXT}"),
        ("ACTION", rf"Action: {WHO} ?{TEXT}"),
        ("JOIN", rf"{_MASKED} (?:re)?joined {CHANNEL}\."),
        ("PART", rf"{_MASKED} left (?P<channel>[#&!+][^\s,]*?){REASON}\."),
        ("QUIT", rf"{_MASKED} left irc(?:: {TEXT})?"),
        ("QUIT", rf"{_MASKED} (?P<text>got netsplit)\."),
        ("JOIN", rf"{_MASKED} returned to {CHANNEL}\."),
        ("NICK", rf"Nick change: {WHO} -> {TARGET}"),
        ("KICK", rf"{TARGET} kicked from {CHANNEL} by {_BY}(?:: {TEXT})?"),
        ("MODE", rf"{CHANNEL}: mode change '(?P<text>[^']*)' by {_BY}"),
        ("TOPIC", rf"Topic changed on {CHANNEL} by {_BY}: {TEXT}"),
        ("NOTICE", rf"-(?P<nick>[^\s:]+)(?::\S*)?- {TEXT}"),
        ("NOTICE", rf"-{_MASKED}- {TEXT}"),
        ("", r".* got lost in the net-split\."),
    ],
    days=r"\[\d\d:\d\d(?::\d\d)?\] --- [A-Z][a-z]{2} [A-Z][a-z]{2} ",
)

# The published logs of #ubuntu. Their early years have a space after each bracket of a nick:
# `<bur[n] er>`.
_SPACED = r"=== (?P<nick>(?:\[\S+\] )?\S+)"
UBUNTU = text_format(
    "ubuntu",
    rf"\[{CLOCK}\] ",
    [
        ("PRIVMSG", rf"<(?P<nick>[^<>]{{1,64}})> ?{TEXT}"),
        ("ACTION", rf" \* {WHO} ?{TEXT}"),
        ("NOTICE", rf"-(?P<nick>[^\s:]+):\S+- {TEXT}"),
    ],
    untimed=[
        ("JOIN", rf"{_SPACED} +\[{MASK}\] +has joined {CHANNEL}"),
        ("PART", rf"{_SPACED} +\[{MASK}\] +has left {CHANNEL} *(?:\[(?P<text>.*)\])? *"),
        ("QUIT", rf"{_SPACED} +\[{MASK}\] +has quit *(?:\[(?P<text>.*)\])? *"),
        ("NICK", rf"{_SPACED} is now known as {TARGET}"),
        ("MODE", rf"=== mode/{CHANNEL} \[(?P<text>[^\]]*)\] +by {WHO}"),
        ("KICK", rf"=== {TARGET} was kicked off {CHANNEL} by {WHO}{REASON}"),
        ("TOPIC", rf"=== {WHO} changed the topic of {CHANNEL} to:? {TEXT}"),
        ("TOPIC", rf"=== \.\.\[topic/(?P<channel>[^\s:]+):(?P<nick>[^\]]+)\] : {TEXT}"),
        ("", r"=== (?:Topic|Users|#\S+ ).*"),
        ("ACTION", rf"=== (?P<nick>[^\s\[]\S*) {TEXT}"),
    ],
)


class JsonEvent(BaseModel):
    """The JSON object of an event, as `terrarium logs export` writes it: the log's fields by name,
    with the time in ISO 8601."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    network: _Name
    channel: _Name
    type: EventType
    time: AwareDatetime
    nick: str
    text: str = ""
    user: str = ""
    host: str = ""
    account: str | None = None
    target: str = ""
    msgid: str | None = None
    own: bool = False
    private: bool = False

    def event(self) -> Event:
        """Return the event with its time in UTC."""
        values = self.model_dump(exclude={"private"})
        return Event(**{**values, "time": self.time.astimezone(UTC)})


def json_line(event: Event) -> str:
    """Return an event as a line of JSON, without line end."""
    return JsonEvent.model_validate(event).model_dump_json(exclude_defaults=True)


def _parse_json(line: str) -> Parsed:
    if not line.strip():
        return Ignored()
    try:
        read = JsonEvent.model_validate_json(line)
        event = read.event()
    except (ValidationError, OverflowError):
        return None
    if "private" in read.model_fields_set and read.private != event.private:
        kind = "private conversation" if event.private else "channel"
        return Refused(
            f'"private": {str(read.private).lower()}, but {event.channel!r} is the name of a {kind}'
        )
    return event


JSONL = Format("jsonl", _parse_json)

# Of the formats that parse a file equally well the first wins: several share `[12:34] <nick> text`.
_ALL = (WEECHAT, LIMNORIA, HEXCHAT, IRSSI, ENERGYMECH, EGGDROP, UBUNTU, JSONL)
FORMATS: Mapping[str, Format] = {each.name: each for each in _ALL} | {"znc": ENERGYMECH}


def detect(lines: Sequence[str]) -> Format | None:
    """Return the format that parses most events of `lines`, then most lines of any kind; None if
    none parses any event."""
    best, most = None, (0, 0)
    for format in _ALL:
        parsed = [format.parse(line) for line in lines]
        events = sum(isinstance(each, ParsedLine | Refused | Event) for each in parsed)
        score = events, sum(each is not None for each in parsed)
        if events and score > most:
            best, most = format, score
    return best
