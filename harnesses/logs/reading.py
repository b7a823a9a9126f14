"""Reading a log file line by line: its format is detected, its events are completed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, tzinfo
from itertools import islice
from pathlib import Path
from typing import IO, cast

from harnesses.irc.protocol.message import decode
from harnesses.logs.calendar import DateTracker
from harnesses.logs.errors import UnrecognisedLog
from harnesses.logs.formats import FORMATS, detect
from harnesses.logs.formats.grammar import DayChange, Format, Ignored, ParsedLine
from harnesses.logs.naming import parse_path
from storage.chat_log.event import Event, Place

_LONGEST = 64 * 1024  # bytes of a line that are read; no IRC line has so many
_CHANNEL_SIGNS = "#&!+"  # any other name is that of a person, who wrote in private
_LOOKED_AT = 400  # lines by which a format is told
_BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import; None is to be found in the files.

    `zone` is that of the times in them, `network` counts where the path names none.
    """

    zone: tzinfo
    default_network: str | None = None
    network: str | None = None
    channel: str | None = None
    format: str | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """A line of a file: its event, or None when it was not understood or has no time.

    `exact` says that the times of this format have seconds, not only minutes; `line` is the line
    itself.
    """

    event: Event | None
    exact: bool
    line: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file whose format is known. `day` is that of its first line, if its name tells."""

    path: Path
    format: Format
    place: Place
    day: date | None
    options: ImportOptions

    def lines(self) -> Iterator[ParsedEvent]:
        """Every line that is an event or is not understood, in order. Raises UnrecognisedLog."""
        dates = DateTracker(self.options.zone, self.day)
        for line in _lines(self.path, self.options):
            parsed = self.format.parse(line)
            if isinstance(parsed, DayChange):
                dates.turn_to(parsed.date)
            elif isinstance(parsed, ParsedLine):
                yield ParsedEvent(self._event(parsed, dates), parsed.when.exact, line)
            elif isinstance(parsed, Event):
                yield ParsedEvent(self._relocate(parsed), True, line)
            elif not isinstance(parsed, Ignored):
                yield ParsedEvent(None, False, line)

    def _event(self, entry: ParsedLine, dates: DateTracker) -> Event | None:
        moment = dates.moment(entry.when)
        if moment is None:
            return None
        return Event(
            network=self.place.network,
            channel=self.place.channel,
            private=self.place.channel[0] not in _CHANNEL_SIGNS,
            type=entry.type,
            time=moment,
            nick=entry.nick,
            text=entry.text,
            user=entry.user,
            host=entry.host,
            target=entry.target,
        )

    def _relocate(self, event: Event) -> Event:
        """Return a whole event, moved to where the user says that it belongs."""
        options = self.options
        return replace(
            event,
            network=options.network or event.network,
            channel=options.channel or event.channel,
        )


def log_file(path: Path, options: ImportOptions) -> LogFile:
    """Look at the beginning of a file and at its name. Raises UnrecognisedLog."""
    head = list(islice(_lines(path, options), _LOOKED_AT))
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


def _lines(path: Path, options: ImportOptions) -> Iterator[str]:
    """The lines of a file, decoded, without line ends. Raises UnrecognisedLog."""
    decoder = _decoder(options.encoding)
    with _open_binary(path) as file:
        while line := file.readline(_LONGEST):
            yield decoder(line.rstrip(b"\r\n"))


@contextmanager
def _open_binary(path: Path) -> Iterator[IO[bytes]]:
    try:
        with _open(path) as file:
            yield file
    except _BROKEN as error:
        raise UnrecognisedLog(f"{path}: cannot be read: {error}") from error


def _open(path: Path) -> IO[bytes]:
    """Return the file, decompressed where its name says that it is compressed."""
    match path.suffix:
        case ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        case ".xz":
            return lzma.open(path, "rb")
        case ".bz2":
            return bz2.open(path, "rb")
    return path.open("rb")


def _decoder(encoding: str | None) -> Callable[[bytes], str]:
    """By the rule for lines from the network, or by `encoding` where a line is right in it."""
    if encoding is None:
        return decode

    def decode_line(line: bytes) -> str:
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            return decode(line)

    return decode_line
