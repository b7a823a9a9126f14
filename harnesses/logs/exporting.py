"""`terrarium logs export`: writes the log into files of open formats, a piece at a time."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal, Protocol
from urllib.parse import quote

from harnesses.logs.errors import OperationRefused
from harnesses.logs.formats.jsonl import json_line
from harnesses.logs.formats.text import text_line
from harnesses.logs.maintenance import open_log
from harnesses.logs.new_file import atomic_write
from storage.chat_log.event import Event
from storage.chat_log.sqlite_export import SqliteExport
from storage.db.address import Address
from storage.log import ChatLog, Query

ExportFormat = Literal["jsonl", "text", "sqlite"]

_EVENTS_PER_READ = 1_000  # events that are in memory at once
_IN_NAMES = " #&!+@{}[]()^`|~',;=$*"  # not escaped in names of files, besides letters and digits


class EventSink(Protocol):
    """A target of an export."""

    async def add(self, events: Sequence[Event]) -> None:
        """Write events, all later than those of the previous call."""


async def export_to(
    address: Address, query: Query, format: ExportFormat, target: Path | None, *, force: bool
) -> int:
    """Export from the database at `address` into `target`; None or "-" is standard output.

    Returns the number of events. Raises OperationRefused and StorageError.
    """
    async with open_log(address) as database, _sink(format, target, force) as sink:
        return await export(ChatLog(database), query, sink)


@asynccontextmanager
async def _sink(format: ExportFormat, target: Path | None, force: bool) -> AsyncIterator[EventSink]:
    if target is None or target == Path("-"):
        if format != "jsonl":
            raise OperationRefused(f"{format} needs a PATH to write to")
        yield JsonLinesSink(sys.stdout.buffer)
    elif format == "text":
        _require_empty(target)
        yield TextDaysSink(target)
    else:
        with atomic_write(target, force=force) as part:
            if format == "sqlite":
                async with SqliteExport.open(part) as copy:
                    yield copy
            else:
                with part.open("wb") as file:
                    yield JsonLinesSink(file)


async def export(log: ChatLog, query: Query, sink: EventSink) -> int:
    """Write all events that match `query`, oldest first; return how many. Raises StorageError."""
    count, last = 0, 0
    while True:
        piece = replace(query, after_id=last, limit=_EVENTS_PER_READ)
        events = await log.find(piece, newest=False)
        if not events:
            return count
        await sink.add(events)
        count, last = count + len(events), events[-1].id


class JsonLinesSink:
    """A sink that writes JSON Lines to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def add(self, events: Sequence[Event]) -> None:
        """Write a line for each event."""
        self._file.writelines(json_line(event).encode() + b"\n" for event in events)


class TextDaysSink:
    """A sink that writes text to files `NETWORK/CHANNEL/DAY.log` in a folder; days are in UTC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def add(self, events: Sequence[Event]) -> None:
        """Append each event to the file of its day."""
        days: defaultdict[Path, list[bytes]] = defaultdict(list)
        for event in events:
            folder = self._folder / file_name(event.network) / file_name(event.channel)
            line = text_line(event).encode("utf-8", "replace") + b"\n"
            days[folder / f"{event.time:%Y-%m-%d}.log"].append(line)
        for path, lines in days.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.writelines(lines)


def _require_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OperationRefused(f"{folder} is there already; text needs a new or an empty folder")


def file_name(name: str) -> str:
    """Return the file name for a network or channel.

    Names come from the network. As "/" and a leading dot are escaped, none leads out of its folder
    ("..") or is a hidden file.
    """
    safe = quote(name, safe=_IN_NAMES, errors="replace")
    return f"%2E{safe[1:]}" if safe.startswith(".") else safe
