"""The reader of log files: detects the format and completes the events, line by line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import IO, cast

from harnesses.irc.protocol.message import decode
from harnesses.logs.calendar import DateTracker
from harnesses.logs.errors import UnrecognisedLog
from harnesses.logs.formats import FORMATS, detect
from harnesses.logs.formats.grammar import DayChange, Format, Ignored, ParsedLine, Refused
from harnesses.logs.naming import parse_path
from storage.chat_log.event import Event, Place, is_private

_MAX_LINE_SIZE = 64 * 1024  # bytes, more than IRC has
_TOO_LONG = f"it is longer than {_MAX_LINE_SIZE:,} bytes"
_DETECTION_LINES = 400  # lines by which a format is detected
_MAX_CLOCK_LEAD = timedelta(days=1)  # by which a clock or a time zone may be wrong
_READ_ERRORS = (OSError, EOFError, lzma.LZMAError, zlib.error)


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


@dataclass(frozen=True, slots=True)
class _RawLine:
    """A decoded line without its end; `is_cut` if it is longer than `_MAX_LINE_SIZE`. `position` is
    as in `ParsedEvent`."""

    text: str
    is_cut: bool
    position: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file of a known format. `day` is that of its first line, if its name tells."""

    path: Path
    format: Format
    place: Place
    day: date | None
    options: ImportOptions

    def lines(self) -> Iterator[ParsedEvent]:
        """Yield every line that is an event or could not be parsed, in order. Raises
        UnrecognisedLog."""
        dates = DateTracker(self.options.zone, self.day)
        for number, line in enumerate(_lines(self.path, self.options), 1):
            parsed = Refused(_TOO_LONG) if line.is_cut else self.format.parse(line.text)
            if isinstance(parsed, DayChange):
                dates.turn_to(parsed.date)
            elif isinstance(parsed, Ignored):
                continue
            elif isinstance(parsed, ParsedLine):
                event = self._check_time(self._event(parsed, dates))
                yield self._parsed(event, parsed.when.has_seconds, line, number)
            elif isinstance(parsed, Event):
                yield self._parsed(self._check_time(self._relocate(parsed)), True, line, number)
            else:
                yield self._parsed(parsed, False, line, number)

    def _parsed(
        self, found: Event | Refused | None, has_seconds: bool, line: _RawLine, number: int
    ) -> ParsedEvent:
        if isinstance(found, Refused):
            return ParsedEvent(None, has_seconds, line.text, number, line.position, found.reason)
        return ParsedEvent(found, has_seconds, line.text, number, line.position)

    def _check_time(self, found: Event | Refused | None) -> Event | Refused | None:
        """Refuse an event whose time is in the future."""
        if isinstance(found, Event) and found.time > self.options.latest:
            return Refused(f"its time, {found.time:%Y-%m-%d %H:%M} UTC, is in the future")
        return found

    def _event(self, entry: ParsedLine, dates: DateTracker) -> Event | None:
        moment = dates.moment(entry.when)
        if moment is None:
            return None
        return Event(
            network=self.place.network,
            channel=self.place.channel,
            type=entry.type,
            time=moment,
            nick=entry.nick,
            text=entry.text,
            user=entry.user,
            host=entry.host,
            target=entry.target,
        )

    def _relocate(self, event: Event) -> Event | Refused:
        """Return an event of our own export, moved to the network and channel of the options."""
        network = self.options.network or event.network
        channel = self.options.channel or event.channel
        # A place is private by its name: another kind of name would publish a private line.
        if is_private(channel) != event.private:
            kinds = ("a channel", "a private conversation")
            return Refused(f"it is of {kinds[event.private]}, and {channel!r} is none")
        return replace(event, network=network, channel=channel)


def log_file(path: Path, options: ImportOptions) -> LogFile:
    """Return a file with its format and place, as its first lines and its path tell. Raises
    UnrecognisedLog."""
    head = [line.text for line in islice(_lines(path, options), _DETECTION_LINES)]
    format = FORMATS[options.format] if options.format else detect(head)
    if format is None:
        raise UnrecognisedLog(f"{path}: not a log in a format that is known")
    name = parse_path(path.resolve())
    if format.name == "jsonl":  # each line names its own place
        return LogFile(path, format, Place("", ""), None, options)
    network = options.network or name.network or options.default_network
    channel = options.channel or name.channel or _channel_in(head, format)
    if network is None:
        raise UnrecognisedLog(f"{path}: of which network? say --network NAME")
    if channel is None:
        raise UnrecognisedLog(f"{path}: of which channel? say --channel NAME")
    return LogFile(path, format, Place(network, channel), name.day, options)


def _channel_in(lines: Iterable[str], format: Format) -> str | None:
    """Return the first channel that a line names."""
    parsed = map(format.parse, lines)
    named_in = (each.channel for each in parsed if isinstance(each, ParsedLine) and each.channel)
    return next(named_in, None)


def _lines(path: Path, options: ImportOptions) -> Iterator[_RawLine]:
    """Yield the lines of a file. Raises UnrecognisedLog."""
    decoder = _decoder(options.encoding)
    try:
        with path.open("rb") as packed, _decompress(packed, path.suffix) as file:
            while line := file.readline(_MAX_LINE_SIZE):
                rest = line
                while len(rest) == _MAX_LINE_SIZE and not rest.endswith(b"\n"):
                    rest = file.readline(_MAX_LINE_SIZE)
                yield _RawLine(decoder(line.rstrip(b"\r\n")), rest is not line, packed.tell())
    except _READ_ERRORS as error:
        raise UnrecognisedLog(f"{path}: cannot be read: {error}") from error


def _decompress(file: IO[bytes], suffix: str) -> IO[bytes]:
    """Return a file with decompression by the suffix of its name."""
    match suffix:
        case ".gz":
            return cast("IO[bytes]", gzip.open(file, "rb"))
        case ".xz":
            return lzma.open(file, "rb")
        case ".bz2":
            return bz2.open(file, "rb")
    return file


def _decoder(encoding: str | None) -> Callable[[bytes], str]:
    """Return the decoder of a line: that of lines from IRC, with `encoding` tried before it."""
    if encoding is None:
        return decode

    def decode_line(line: bytes) -> str:
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            return decode(line)

    return decode_line
