"""The reader of log files: detects the format and completes the events, line by line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any

from harnesses.core.errors import TendrilError
from harnesses.irc.protocol.message import decode
from harnesses.logs.formats import (
    FORMATS,
    DayChange,
    Ignored,
    ParsedLine,
    Refused,
    Timestamp,
    date_of,
    detect,
)
from storage.chat_log.event import Event, Place, is_private

_MAX_LINE_SIZE = 64 * 1024  # bytes, more than IRC has
_TOO_LONG = f"it is longer than {_MAX_LINE_SIZE:,} bytes"
_DETECTION_LINES = 400  # lines by which a format is detected
_MAX_CLOCK_LEAD = timedelta(days=1)  # by which a clock or a time zone may be wrong
_READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)
_DECOMPRESS: Mapping[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_MIDNIGHT_JUMP = timedelta(hours=3)  # a clock that goes back by more has passed midnight
# A date without a year that goes back by more is in the next year.
_NEW_YEAR_JUMP = timedelta(days=180)
_LEAST, _MOST = date(1988, 1, 1), date(9998, 12, 31)  # IRC began in 1988

_ISO = re.compile(r"(?<!\d)(?P<year>\d{4})-?(?P<month>\d\d)-?(?P<day>\d\d)(?!\d)")
_WORDED = re.compile(r"(?<!\d)(?P<day>\d{1,2})(?P<month>[A-Z][a-z]{2})(?P<year>\d{4})(?!\d)")
_DAY = re.compile(r"\d{4}(?:-?\d\d){0,2}")
_CHANNEL = re.compile(r"[#&!+][^/,\s]+")
_ENDING = re.compile(r"(?:\.(?:weechatlog|log|txt|irclog|raw|jsonl|gz|xz|bz2))+\Z")
_MONTH_AND_DAY = re.compile(r"\.\d\d-\d\d\Z")  # in irssi's file names; the lines have the year
_WEECHAT = re.compile(r"irc\.(?P<network>.+?)\.(?P<channel>[#&!+].+)")
_FOLDERS = frozenset({"log", "logs", "irclogs", "channellogger", "xchatlogs", "scrollback"})


class UnrecognisedLog(TendrilError):
    """The file cannot be imported; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of an import; None is detected from the files.

    `zone` is the time zone of their times. `default_network` is used if a path names none. Nothing
    later than `latest` is imported: it would be the newest line of the log until that time.
    """

    zone: tzinfo
    default_network: str | None = None
    network: str | None = None
    channel: str | None = None
    format: str | None = None
    encoding: str | None = None
    latest: datetime = field(default_factory=lambda: datetime.now(UTC) + _MAX_CLOCK_LEAD)


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """A line of a file with its event, None if it could not be parsed, has no known time, or is
    `refused` for a reason.

    `has_seconds` tells that its time has seconds; `number` is that of the line in the file, from 1.
    `position` is how many bytes of the file, compressed or not, were read so far.
    """

    event: Event | None
    has_seconds: bool
    line: str
    number: int
    position: int
    refused: str = ""


def read_log(path: Path, options: ImportOptions) -> Iterator[ParsedEvent]:
    """Yield every line of a file that is an event or could not be parsed, in order. Its format is
    detected by its first lines, its place by these and its path. Raises UnrecognisedLog."""
    head = [text for text, *_ in islice(_lines(path, options), _DETECTION_LINES)]
    format = FORMATS[options.format] if options.format else detect(head)
    if format is None:
        raise UnrecognisedLog(f"{path}: not in a known log format")
    named = parse_path(path.resolve())
    place = None
    if format.name != "jsonl":  # each line of our own export names its own place
        network = options.network or named.network or options.default_network
        if network is None:
            raise UnrecognisedLog(f"{path}: which network is it of? Name it with --network")
        parsed = (each for each in map(format.parse, head) if isinstance(each, ParsedLine))
        in_lines = (each.channel for each in parsed if each.channel)
        channel = options.channel or named.channel or next(in_lines, None)
        if channel is None:
            raise UnrecognisedLog(f"{path}: which channel is it of? Name it with --channel")
        place = Place(network, channel)
    dates = DateTracker(options.zone, named.day)
    for number, (text, is_cut, position) in enumerate(_lines(path, options), 1):
        found = Refused(_TOO_LONG) if is_cut else format.parse(text)
        has_seconds = isinstance(found, Event)
        if isinstance(found, Ignored):
            continue
        if isinstance(found, DayChange):
            dates.turn_to(found.date)
            continue
        if isinstance(found, ParsedLine):
            has_seconds = found.when.has_seconds
            moment = dates.moment(found.when)
            found = _event(found, place, moment) if place and moment else None
        elif isinstance(found, Event):
            channel = options.channel or found.channel
            # A place is private by its name: another kind of name would publish a private line.
            if is_private(channel) != found.private:
                kind = "a private conversation" if found.private else "a channel"
                found = Refused(f"it is of {kind}, and {channel!r} is none")
            else:
                network = options.network or found.network
                found = replace(found, network=network, channel=channel)
        if isinstance(found, Event) and found.time > options.latest:
            found = Refused(f"its time, {found.time:%Y-%m-%d %H:%M} UTC, is in the future")
        event = found if isinstance(found, Event) else None
        refused = found.reason if isinstance(found, Refused) else ""
        yield ParsedEvent(event, has_seconds, text, number, position, refused)


def _event(line: ParsedLine, place: Place, time: datetime) -> Event:
    return Event(
        network=place.network,
        channel=place.channel,
        type=line.type,
        time=time,
        nick=line.nick,
        text=line.text,
        user=line.user,
        host=line.host,
        target=line.target,
    )


class DateTracker:
    """The current day while a file is read, in the time zone `zone`: completes the partial times of
    lines in the context of those before. `day` is that of the first line, if it is known."""

    def __init__(self, zone: tzinfo, day: date | None) -> None:
        self._zone, self._day = zone, day
        self._last: datetime | None = None  # local, without zone
        self._moment: datetime | None = None

    def turn_to(self, day: date) -> None:
        """Set the day of the next line."""
        self._day = day
        self._last = None

    def moment(self, when: Timestamp) -> datetime | None:
        """Return the UTC time of the next line, None if its day is unknown or impossible.

        A line without a time has that of the line before. In the hour that is repeated when clocks
        are set back, a clock that goes back is taken to be in the second of the two.
        """
        if when.clock is None:
            return self._moment
        day = when.day or self._day
        if when.day and when.year is None:  # in the year that follows on the last line
            if self._day is None:
                return None
            day = _in_year(when.day, self._day.year)
            if day < self._day - _NEW_YEAR_JUMP:
                day = _in_year(day, day.year + 1)
        if day is None or not _LEAST <= day <= _MOST:
            return None
        local = datetime.combine(day, when.clock)
        if when.day is None and self._last and local < self._last - _MIDNIGHT_JUMP:
            local += timedelta(days=1)
        # PEP 495: `fold` tells an ambiguous time's first from its second; for any other time both
        # are the same. It is the first unless only the second is not before the last line.
        zone = UTC if when.utc else self._zone
        first, second = (local.replace(tzinfo=zone, fold=n).astimezone(UTC) for n in (0, 1))
        is_second = self._moment and first < self._moment <= second
        self._moment = second if is_second else first
        self._day, self._last = local.date(), local
        return self._moment


def _in_year(day: date, year: int) -> date:
    try:
        return day.replace(year=year)
    except ValueError:  # 29 February
        return date(year, 3, 1)


def _lines(path: Path, options: ImportOptions) -> Iterator[tuple[str, bool, int]]:
    """Yield the lines of a file, without their ends, whether they were cut at `_MAX_LINE_SIZE`, and
    how many bytes of the file were read so far. Raises UnrecognisedLog."""

    def decode_line(line: bytes) -> str:
        # `encoding` is tried before that of lines from IRC.
        with suppress(UnicodeDecodeError):
            if options.encoding is not None:
                return line.decode(options.encoding)
        return decode(line)

    unpack: Callable[[IO[bytes]], IO[bytes]] = _DECOMPRESS.get(path.suffix, lambda file: file)
    try:
        with path.open("rb") as packed, unpack(packed) as file:
            while line := file.readline(_MAX_LINE_SIZE):
                rest = line
                while len(rest) == _MAX_LINE_SIZE and not rest.endswith(b"\n"):
                    rest = file.readline(_MAX_LINE_SIZE)
                yield decode_line(line.rstrip(b"\r\n")), rest is not line, packed.tell()
    except _READ_ERRORS as error:
        raise UnrecognisedLog(f"{path}: cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class PathInfo:
    """The network, channel and day that a path names; None for what it does not."""

    network: str | None = None
    channel: str | None = None
    day: date | None = None


def parse_path(path: PurePath) -> PathInfo:
    """Parse a path by the naming of the usual programs. Never raises.

    `irclogs/libera/#python.log` (irssi), `irc.libera.#python.weechatlog` (WeeChat),
    `log/libera/#python/2024-01-02.log` (ZNC), `logs/libera/#python.log` (HexChat),
    `ChannelLogger/libera/#python/#python.2024-01-02.log` (Limnoria), `#python.log.02Jan2024`
    (eggdrop).
    """
    day, stem = None, path.name
    for pattern in (_ISO, _WORDED):
        found = pattern.search(stem)
        if found and (day := date_of(found["year"], found["month"], found["day"])):
            stem = stem[: found.start()] + stem[found.end() :]
            break
    stem = _ENDING.sub("", stem.rstrip("._- ")).strip("._- ")
    if found := _WEECHAT.fullmatch(stem):
        return PathInfo(found["network"], found["channel"], day)
    folders = [part for part in path.parts[:-1] if part.strip("/.")]
    if found := _CHANNEL.search(stem):
        channel = _MONTH_AND_DAY.sub("", found[0])
    elif folders and _CHANNEL.fullmatch(folders[-1]):
        channel = folders[-1]
    else:
        return PathInfo(day=day)
    # The network's folder contains the file or folder of the channel, and is itself in a folder
    # with a usual name for logs, or in ZNC's `networks`. Folders elsewhere may have any name.
    outside = [name for name in folders if name != channel and not _DAY.fullmatch(name)]
    network = None
    if len(outside) >= 2 and outside[-2].lower() in _FOLDERS:
        network = None if outside[-1].lower() in _FOLDERS else outside[-1]
    elif "networks" in outside[:-1]:
        network = outside[outside.index("networks") + 1]
    return PathInfo(network, channel, day)
