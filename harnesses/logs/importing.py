"""`terrarium logs import`: adds log files to the log, which a bot may be writing meanwhile."""

from __future__ import annotations

import asyncio
import codecs
import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from harnesses.core.addresses import irc_networks
from harnesses.core.text import counted, strip_control_chars
from harnesses.logs.formats import FORMATS
from harnesses.logs.reading import ImportOptions, UnrecognisedLog, read_log
from storage.chat_log.event import Place
from storage.chat_log.files import FileImport, ImportedEvent
from storage.chat_log.opt_outs import OptOutRules, OptOuts
from storage.db.database import Database
from storage.db.process_lock import hold_lock
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, take_options
from terrarium.config import Config, load

_EVENTS_PER_BATCH = 2_000  # events of a transaction, for one of which the bot may have to wait
_MAX_EXAMPLES, _MAX_SKIPPED = 3, 10  # lines of a report

OnProgress = Callable[[Path, int], None]
"""Called with a file and the number of its bytes that were read since the last call, as they are on
the disk, compressed or not."""


@dataclass(slots=True)
class ImportStats:
    """The counts of an import.

    `imported` events are new; they and the `present` ones, which the log already had, are in
    `places`. `unwanted` lines are of people who have opted out, or marked. `unclear` lines could
    not be parsed; `examples` are the first of them. `refused` has the reasons why files were not
    read, and why the first of the `refused_lines` were not imported.
    """

    files: int = 0
    imported: int = 0
    places: set[Place] = field(default_factory=set)
    present: int = 0
    unwanted: int = 0
    unclear: int = 0
    examples: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    refused_lines: int = 0


def _encoding(name: str | None) -> str | None:
    try:
        return name and codecs.lookup(name).name
    except LookupError as error:
        raise typer.BadParameter(f"{name!r} is not an encoding; write one as latin-1") from error


def _format(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise typer.BadParameter(f"{name!r} is not a format; there are: {', '.join(FORMATS)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand:
    """The arguments and options of `terrarium logs import`."""

    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders, or patterns.")
    ]
    network: Annotated[
        str | None,
        typer.Option(help="Their network.", show_default="from the path, or [irc]"),
    ] = None
    channel: Annotated[
        str | None, typer.Option(help="Their channel.", show_default="from the path")
    ] = None
    format: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(FORMATS)}.", show_default="by looking", callback=_format),
    ] = None
    timezone: Annotated[str, typer.Option(help="Time zone of their times.", metavar="ZONE")] = "UTC"
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Of the text.", show_default="UTF-8, else cp1252, by line", callback=_encoding
        ),
    ] = None
    config: ConfigFile = None
    data: DataFolder = Path("data")


@take_options
def import_(command: ImportCommand) -> None:
    """Import logs of other programs; events that the log already has are not added again.

    The formats of irssi, WeeChat, ZNC, HexChat, Limnoria, EnergyMech, eggdrop, the published logs
    of #ubuntu and our own export are recognised by their lines; files may be compressed (.gz, .xz,
    .bz2). The bot may be running. To continue an interrupted import, run the same command again.
    """
    name = command.timezone
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(
            f"{name!r} is not a time zone; write one as Europe/Vienna"
        ) from error
    config = load(command.config, command.data)
    networks = irc_networks(config)
    options = ImportOptions(
        zone=zone,
        default_network=networks[0] if len(networks) == 1 else None,
        network=command.network,
        channel=command.channel,
        format=command.format,
        encoding=command.encoding,
    )
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        total = sum(path.stat().st_size for path in files(command.paths))
        task = progress.add_task("", total=total)

        def on_progress(path: Path, done: int) -> None:
            progress.update(task, advance=done, description=strip_control_chars(path.name))

        with hold_lock(config.data, "logs-import", "terrarium logs import", shared=True):
            stats = asyncio.run(import_logs(config, command.paths, options, on_progress))
    missing = [path for path in command.paths if not files([path])]
    typer.echo(
        f"{counted(stats.files, 'file')}: {counted(stats.imported, 'event')} imported,"
        f" {stats.present} already there, {counted(stats.unclear, 'line')} not understood"
    )
    if stats.places:
        places = ", ".join(sorted(map(str, stats.places)))
        typer.echo(strip_control_chars(f"  of {places}"))
    if stats.unwanted:
        typer.echo(f"  {stats.unwanted} skipped: of people who have opted out, or marked [nolog]")
    for example in stats.examples:
        typer.echo(strip_control_chars(f"  not understood, for example: {example}"))
    for reason in stats.refused[:_MAX_SKIPPED]:
        typer.echo(strip_control_chars(f"  skipped: {reason}"), err=True)
    if more := len(stats.refused[_MAX_SKIPPED:]):
        typer.echo(f"  skipped: {more} more", err=True)
    if stats.refused_lines:
        lines = counted(stats.refused_lines, "line")
        typer.echo(f"  {lines} skipped in all; correct them, and import again")
    if missing:
        typer.echo(strip_control_chars(f"  no such file: {', '.join(missing)}"), err=True)
    if missing or stats.refused or not stats.files:
        raise typer.Exit(1)


async def import_logs(
    config: Config, paths: Sequence[str], options: ImportOptions, on_progress: OnProgress
) -> ImportStats:
    """Add the events of all files to the log. An interrupted import continues if it is run again.

    A path is a file, a folder (searched recursively) or a glob pattern. Raises StorageError.
    """
    stats = ImportStats()
    async with Database.open(log_address(config)) as database:
        opt_out_rules = await OptOuts(database).load()
        for path in files(paths):
            file_import, done = FileImport(database), 0
            try:
                for batch, position in _batches(path, options, opt_out_rules, stats):
                    new = await file_import.add(batch)
                    stats.imported += new
                    stats.present += len(batch) - new
                    stats.places |= {Place(old.event.network, old.event.channel) for old in batch}
                    on_progress(path, position - done)
                    done = position
                stats.files += 1
            except UnrecognisedLog as error:
                stats.refused.append(str(error))
    return stats


def _batches(
    path: Path, options: ImportOptions, opt_out_rules: OptOutRules, stats: ImportStats
) -> Iterator[tuple[list[ImportedEvent], int]]:
    """Yield the events of a file to add, with how many of its bytes were read for them; count the
    other lines."""
    # One transaction for each batch, not for the file: the bot goes on writing in between, and an
    # interrupted import keeps what it has added.
    batch: list[ImportedEvent] = []
    for read in read_log(path, options):
        if read.refused:
            stats.refused_lines += 1
            if stats.refused_lines <= _MAX_EXAMPLES:
                stats.refused.append(f"{path}:{read.number}: {read.refused}")
        elif read.event is None:
            stats.unclear += 1
            if len(stats.examples) < _MAX_EXAMPLES:
                stats.examples.append(f"{path.name}: {read.line[:120]}")
        elif not opt_out_rules.keeps(read.event):
            stats.unwanted += 1
        else:
            batch.append(ImportedEvent(read.event, read.has_seconds))
        if len(batch) >= _EVENTS_PER_BATCH:
            yield batch, read.position
            batch = []
    yield batch, path.stat().st_size


def files(paths: Iterable[str]) -> list[Path]:
    """Return the files that the paths name, each once, in order, without hidden ones in folders."""
    found: dict[Path, None] = {}
    for path in paths:
        # A name that exists is no pattern: IRC channels may have "[" and "*" in theirs.
        for each in [Path(path)] if Path(path).exists() else map(Path, sorted(glob.glob(path))):
            for file in sorted(each.rglob("*")) if each.is_dir() else [each]:
                is_hidden = any(part.startswith(".") for part in file.relative_to(each).parts)
                if file == each or (file.is_file() and not is_hidden):
                    found[file] = None
    return list(found)
