"""The commands `terrarium logs ...`: search, import, export, backup and deletion of the log."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from harnesses.core.text import counted, strip_control_chars
from harnesses.logs import log_reading, maintenance
from harnesses.logs.exporting import ExportFormat, export_to
from harnesses.logs.formats import FORMATS
from harnesses.logs.importing import ImportStats, files, import_logs
from harnesses.logs.reading import ImportOptions
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import EVERYTHING, PUBLIC
from storage.db.process_lock import hold_lock
from storage.log import Query
from storage.privacy.erasure import NamedPerson
from storage.settings import log_address, log_file
from terrarium.command_line import ConfigFile, DataFolder, take_options
from terrarium.config import Config, load

logs = typer.Typer(help="The chat log: read it, bring logs in and out.", no_args_is_help=True)

Channel = Annotated[str | None, typer.Option(help='Only this channel: "#name" or "network/#name".')]


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(f"{name!r} is no time zone; write one as Europe/Vienna") from error


def _encoding(name: str | None) -> str | None:
    try:
        return name and codecs.lookup(name).name
    except LookupError as error:
        raise typer.BadParameter(f"{name!r} is no encoding; write one as latin-1") from error


def _format(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise typer.BadParameter(f"{name!r} is no format; there are: {', '.join(FORMATS)}")
    return name


@logs.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words that a line must all have.")],
    channel: Channel = None,
    nick: Annotated[str | None, typer.Option(help="Only what this nick said.")] = None,
    hours: Annotated[float, typer.Option(min=0, help="How far back; 0 is everything.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many lines at most, the newest.")] = 20,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Search the lines that people said. Times are in UTC."""
    found = log_reading.search(load(config, data), query, channel, nick, hours, limit)
    lines = asyncio.run(found)
    typer.echo("\n".join(lines) or "nothing found")


@logs.command()
def stats(
    channel: Channel = None, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Count lines and people, and name the most talkative."""
    typer.echo("\n".join(asyncio.run(log_reading.stats(load(config, data), channel))))


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time; write one as 2024-01-31T12:00") from error
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand:
    """The arguments and options of `terrarium logs import`."""

    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Files, folders, or patterns.")
    ]
    network: Annotated[
        str | None,
        typer.Option(help="The network they are of.", show_default="from the path, or [irc]"),
    ] = None
    channel: Annotated[
        str | None, typer.Option(help="The channel they are of.", show_default="from the path")
    ] = None
    format: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(FORMATS)}.", show_default="by looking", callback=_format),
    ] = None
    timezone: Annotated[
        str, typer.Option(help="The time zone of the times in them.", metavar="ZONE")
    ] = "UTC"
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Of the text.", show_default="UTF-8, else cp1252, by line", callback=_encoding
        ),
    ] = None
    config: ConfigFile = None
    data: DataFolder = Path("data")


@logs.command("import")
@take_options
def import_(command: ImportCommand) -> None:
    """Import logs of other programs; events that the log already has are not added again.

    The formats of irssi, WeeChat, ZNC, HexChat, Limnoria, EnergyMech, eggdrop, the published logs
    of #ubuntu and our own export are recognised by their lines; files may be compressed (.gz, .xz,
    .bz2). The bot may be running. To continue an interrupted import, run the same command again.
    """
    config = load(command.config, command.data)
    options = ImportOptions(
        zone=_zone(command.timezone),
        default_network=_only_network(config),
        network=command.network,
        channel=command.channel,
        format=command.format,
        encoding=command.encoding,
    )
    _report(_import_files(config, command.paths, options), command.paths)


def _import_files(config: Config, paths: list[str], options: ImportOptions) -> ImportStats:
    """Import files, with a progress bar on a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        named = files(paths)
        task = progress.add_task("", total=sum(path.stat().st_size for path in named))

        def on_progress(path: Path, done: int) -> None:
            progress.update(task, advance=done, description=strip_control_chars(path.name))

        with hold_lock(config.data, "logs-import", "terrarium logs import", shared=True):
            return asyncio.run(import_logs(config, paths, options, on_progress))


def _report(stats: ImportStats, paths: list[str]) -> None:
    """Print the counts of an import. Exit with status 1 if a path names no file, or if a file or a
    line was left out."""
    typer.echo(
        f"{counted(stats.files, 'file')}: {counted(stats.imported, 'event')} imported,"
        f" {stats.present} already there, {counted(stats.unclear, 'line')} not understood"
    )
    places = sorted(map(str, stats.places))
    if places:
        typer.echo(strip_control_chars(f"  of {', '.join(places)}"))
    if stats.unwanted:
        typer.echo(f"  {stats.unwanted} left out: of people who have opted out, or marked [nolog]")
    for example in stats.examples:
        typer.echo(strip_control_chars(f"  not understood, for example: {example}"))
    for reason in stats.refused:
        typer.echo(strip_control_chars(f"  left out: {reason}"), err=True)
    if stats.refused_lines:
        typer.echo(f"  {stats.refused_lines} lines left out in all; correct them, and import again")
    missing = [path for path in paths if not files([path])]
    if missing:
        typer.echo(strip_control_chars(f"  no such file: {', '.join(missing)}"), err=True)
    if missing or stats.refused or not stats.files:
        raise typer.Exit(1)


def _only_network(config: Config) -> str | None:
    """Return the bot's network if it has only one, else None. Without [irc.networks] the table
    [irc] is the network "irc"."""
    irc = config.tables.get("irc", {})
    names = list(irc.get("networks", {})) if isinstance(irc, Mapping) else []
    return (names or ["irc"])[0] if len(names) < 2 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCommand:
    """The arguments and options of `terrarium logs export`."""

    target: Annotated[
        Path | None,
        typer.Argument(metavar="[PATH]", help="A new file; a folder for text.", show_default="-"),
    ] = None
    format: Annotated[
        ExportFormat, typer.Option(help="One event a line; a text file a day; one open table.")
    ] = "jsonl"
    channel: Channel = None
    since: Annotated[str | None, typer.Option(help="From this time on.", metavar="TIME")] = None
    until: Annotated[str | None, typer.Option(help="Before this time.", metavar="TIME")] = None
    private: Annotated[
        bool, typer.Option("--private", help="Also conversations with one person.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False
    config: ConfigFile = None
    data: DataFolder = Path("data")


@logs.command()
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


@logs.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Copy the whole log, with the bot's memory, into FILE. The bot may be running."""
    path = log_file(load(config, data))
    maintenance.back_up_log(path, target, force=force)
    typer.echo(f"{target}: {target.stat().st_size:,} bytes")


@logs.command()
def forget(
    nick: Annotated[str | None, typer.Option(help="All that was said under this nick.")] = None,
    account: Annotated[
        str | None, typer.Option(help="All that was said under this services account.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Only on this network.", show_default="all")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether that is meant.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Delete everything that is kept of a person, permanently. The bot may be running.

    If several people have used a nick, all of them are forgotten. Deletions that were interrupted
    before are completed as well.
    """
    if (nick is None) == (account is None):
        raise typer.BadParameter("say either --nick or --account")
    loaded = load(config, data)
    person = NamedPerson(network, nick, account)
    found = asyncio.run(maintenance.count_of(loaded, person))
    if found and not yes:
        typer.confirm(f"Remove {found} events, and what the bot answered to them?", abort=True)
    gone = asyncio.run(maintenance.forget_named(loaded, person))
    typer.echo(
        f"{gone.events} events removed, with the bot's answers to them and its quotes of them;"
        " copies and exports that you made still have them"
    )
    if not gone.is_finished:
        typer.echo(
            "not finished: a file could not be written (the log above says which); the tendrils go"
            " on at their start and each hour, or run this again",
            err=True,
        )
        raise typer.Exit(1)


@logs.command()
def vacuum(config: ConfigFile = None, data: DataFolder = Path("data")) -> None:
    """Rewrite the log's file: smaller, and without a trace of what was removed.

    Writers wait meanwhile, and the disk needs room for a second file.
    """
    address = log_address(load(config, data))
    before = address.stat().st_size if isinstance(address, Path) and address.exists() else 0
    asyncio.run(maintenance.vacuum_log(address))
    if isinstance(address, Path):
        typer.echo(f"{address}: {before:,} bytes before, {address.stat().st_size:,} now")
    else:
        typer.echo(f"{address}: rewritten")
