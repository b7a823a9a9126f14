"""`terrarium logs export`: writes the log into files of open formats, a piece at a time."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Literal
from urllib.parse import quote

import typer

from harnesses.core.errors import TendrilError
from harnesses.logs.formats import json_line
from harnesses.logs.maintenance import atomic_write, open_log
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import EVERYTHING, PUBLIC, Event, EventType, event_line
from storage.chat_log.sqlite_export import SqliteExport
from storage.db.address import Address
from storage.log import ChatLog, Query
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, take_options
from terrarium.config import load

ExportFormat = Literal["jsonl", "text", "sqlite"]

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
    written = export_to(address, query, command.format, command.target, force=command.force)
    typer.echo(f"{asyncio.run(written)} events", err=True)


Sink = Callable[[Sequence[Event]], Awaitable[None]]
"""Writes events into the target of an export, all later than those of the previous call."""


async def export_to(
    address: Address, query: Query, format: ExportFormat, target: Path | None, *, force: bool
) -> int:
    """Export from the database at `address` into `target`; None or "-" is standard output.

    Returns the number of events. Raises TendrilError and StorageError.
    """
    count = 0
    async with open_log(address) as database:
        with _sink(format, target, force) as sink:
            async for events in ChatLog(database).pieces(query):
                await sink(events)
                count += len(events)
    return count


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
