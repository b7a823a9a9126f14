"""`terrarium logs export`: opens the log, and writes it into files of open formats, a piece at a
time."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal
from urllib.parse import quote

import typer

from harnesses.core.errors import TendrilError
from harnesses.logs.formats import json_line
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import EVERYTHING, PUBLIC, Event, EventType, event_line
from storage.chat_log.files import SqliteExport
from storage.db.database import Address, Database
from storage.db.errors import Unavailable
from storage.db.private_files import sync
from storage.log import ChatLog, Query
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, take_options
from terrarium.config import load

ExportFormat = Literal["jsonl", "text", "sqlite"]

_EXISTS = "{} already exists; --force replaces it"
_PART = ".part"  # suffix of a file that is being written
_IN_NAMES = " #&!+@{}[]()^`|~',;=$*"  # not escaped in names of files, besides letters and digits


Channel = Annotated[str | None, typer.Option(help='Only this channel: "#name" or "network/#name".')]


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is not a time; write one as 2024-01-31T12:00"
        ) from error
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """The arguments and options of `terrarium logs export`."""

    target: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A new file; a folder for text.", show_default="-"),
    ] = None
    format: Annotated[
        ExportFormat,
        typer.Option(
            help="jsonl: an event per line; text: a file per day; sqlite: one open table."
        ),
    ] = "jsonl"
    channel: Channel = None
    since: Annotated[str | None, typer.Option(help="From this time on.", metavar="TIME")] = None
    until: Annotated[str | None, typer.Option(help="Before this time.", metavar="TIME")] = None
    private: Annotated[
        bool, typer.Option("--private", help="Also conversations with one person.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False
    config: ConfigFile = None
    data: DataFolder = Path("data")


@take_options
def export(command: ExportCommand) -> None:
    """Write the log into files: JSON Lines, text, or an SQLite file that anyone can query.

    TIME is a date, or a date and time, in UTC: 2024-01-31 or 2024-01-31T12:00.
    """
    query = Query(
        scope=EVERYTHING if command.private else PUBLIC,
        since=_moment(command.since),
        until=_moment(command.until),
    ).in_channel(ChannelName.parse(command.channel))
    address = log_address(load(command.config, command.data))

    async def write() -> int:
        count = 0
        async with open_log(address) as database:
            with _sink(command.format, command.target, command.force) as sink:
                async for events in ChatLog(database).pieces(query):
                    await sink(events)
                    count += len(events)
        return count

    typer.echo(f"{asyncio.run(write())} events", err=True)


Sink = Callable[[Sequence[Event]], Awaitable[None]]
"""Writes events into the target of an export, all later than those of the previous call."""


@asynccontextmanager
async def open_log(address: Address) -> AsyncIterator[Database]:
    """Open the database of an existing log; one that cannot be written is opened read-only. Raises
    StorageError, also if there is no log: opening its file would create one."""
    can_write = True
    if isinstance(address, Path):
        if not await asyncio.to_thread(address.exists):
            raise Unavailable(f"{address}: there is no log yet; `terrarium up` creates one")
        # The folder as well, in which SQLite creates the files of its write-ahead log.
        can_write = os.access(address, os.W_OK) and os.access(address.parent, os.W_OK)
    async with Database.open(address, read_only=not can_write) as database:
        yield database


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty file of mode 600, which is moved to `path` at the end unless the block raises:
    the file at `path` is complete or absent.

    Raises TendrilError if the file cannot be written, or exists and is not to be replaced by
    `force`.
    """
    if path.exists() and not force:
        raise TendrilError(_EXISTS.format(path))
    part = path.with_name(path.name + _PART)
    # O_EXCL follows no symbolic link that somebody else may have put there, and the mode is set
    # before there is anything to read.
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise TendrilError(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield part
        sync(part)  # before the move: a crash after it must not leave an empty file
        if not force:
            # Reserve the name: another process may have taken it since the look above.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        part.replace(path)
    except FileExistsError as error:
        raise TendrilError(_EXISTS.format(path)) from error
    except OSError as error:
        raise TendrilError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def _sink(format: ExportFormat, target: Path | None, force: bool) -> Iterator[Sink]:
    if target is None or target == Path("-"):
        if format != "jsonl":
            raise TendrilError(f"{format} needs a PATH to write to")
        yield _json_lines(sys.stdout.buffer)
    elif format == "text":
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise TendrilError(f"{target} already exists; text needs a new or an empty folder")
        yield partial(_add_to_days, target)
    else:
        with atomic_write(target, force=force) as part:
            if format == "sqlite":
                with SqliteExport.open(part) as copy:
                    yield copy.add
            else:
                with part.open("wb") as file:
                    yield _json_lines(file)


def _json_lines(file: IO[bytes]) -> Sink:
    async def add(events: Sequence[Event]) -> None:
        file.writelines(json_line(event).encode() + b"\n" for event in events)

    return add


async def _add_to_days(target: Path, events: Sequence[Event]) -> None:
    """Append each event as text to the file `NETWORK/CHANNEL/DAY.log` of its day, in UTC."""
    days: defaultdict[Path, list[bytes]] = defaultdict(list)
    for event in events:
        folder = target / file_name(event.network) / file_name(event.channel)
        line = text_line(event).encode("utf-8", "replace") + b"\n"
        days[folder / f"{event.time:%Y-%m-%d}.log"].append(line)
    for path, lines in days.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.writelines(lines)


def text_line(event: Event) -> str:
    """Return an event as one line of text without line end, as EnergyMech and ZNC write it, so that
    `logs import` can read it; its time is in UTC."""
    nick, text = event.nick, event.text
    mask = f"{event.user}@{event.host}"
    match event.type:
        case EventType.JOIN:
            said = f"*** Joins: {nick} ({mask})"
        case EventType.PART:
            said = f"*** Parts: {nick} ({mask}) ({text})"
        case EventType.QUIT:
            said = f"*** Quits: {nick} ({mask}) ({text})"
        case EventType.KICK:
            said = f"*** {event.target} was kicked by {nick} ({text})"
        case EventType.MODE:
            said = f"*** {nick} sets mode: {text}"
        case EventType.TOPIC:
            said = f"*** {nick} changes topic to '{text}'"
        case _:
            said = event_line(event)
    # A line break in what somebody wrote would let them forge a line of somebody else.
    return " ".join(f"[{event.time:%H:%M:%S}] {said}".splitlines())


def file_name(name: str) -> str:
    """Return the file name for a network or channel.

    Names come from the network. As "/" and a leading dot are escaped, none leads out of its folder
    ("..") or is a hidden file.
    """
    safe = quote(name, safe=_IN_NAMES, errors="replace")
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe
