"""The commands `terrarium logs ...`: search, import, export, backup and deletion of the log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harnesses.core.text import counted, strip_control_chars
from harnesses.logs.exporting import Channel, atomic_write, export, open_log
from harnesses.logs.importing import import_
from llm.messages.message import render_line, stamp
from storage.chat_log import statistics
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import PUBLIC, Event
from storage.db.integrity import back_up
from storage.db.secure_delete import vacuum as rewrite
from storage.log import ChatLog, Query
from storage.privacy.erasure import Forgotten, NamedPerson
from storage.privacy.erasure import count as count_of
from storage.privacy.erasure import forget as forget_person
from storage.search.models import Order, SearchPage, SearchQuery
from storage.settings import log_address, log_file
from terrarium.command_line import ConfigFile, DataFolder
from terrarium.config import load

if TYPE_CHECKING:
    from llm.retrieval import Found

logs = typer.Typer(help="The chat log: search, import, export and copy it.", no_args_is_help=True)
logs.command("import")(import_)
logs.command()(export)


@logs.command()
def search(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Words that a line must contain, or a question.")
    ],
    channel: Channel = None,
    nick: Annotated[str | None, typer.Option(help="Only lines by this nick.")] = None,
    hours: Annotated[float, typer.Option(min=0, help="Hours to look back; 0: everything.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines, the newest.")] = 20,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Search the lines that people said. Times are in UTC."""
    from llm.retrieval import Retrieval  # not needed by the other commands

    within = Query(
        scope=PUBLIC,
        nick=nick,
        own=False,
        since=datetime.now(UTC) - timedelta(hours=hours) if hours else None,
        limit=limit,
    ).in_channel(ChannelName.parse(channel))

    async def find() -> tuple[Found, SearchPage]:
        async with open_log(log_address(load(config, data))) as database:
            log = ChatLog(database)
            # Without the agent server: by words alone.
            answers = await Retrieval(log).answers(query, within)
            asked = SearchQuery(text=query, within=within, order=Order.TIME)
            return answers, await log.search(asked)

    answers, page = asyncio.run(find())
    lines = []
    if answers.passages:
        lines.append("the answer:" if answers.is_sure else "perhaps the answer:")
        lines += [_line(each.event) for each in answers.passages]
        lines.append("all lines with these words:")
    lines += [_line(hit.event) for hit in reversed(page.hits)]
    if page.searched_back_to is not None:
        lines.append(f"(searched back to {stamp(page.searched_back_to)} only)")
    typer.echo("\n".join(lines) or "nothing found")


def _line(event: Event) -> str:
    return strip_control_chars(f"{event.network}/{event.channel} {render_line(event)}")


@logs.command()
def stats(
    channel: Channel = None, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Count lines and people, and name the most talkative."""
    query = Query(scope=PUBLIC).in_channel(ChannelName.parse(channel))

    async def read() -> statistics.Stats:
        async with open_log(log_address(load(config, data))) as database:
            return await database.read(statistics.stats, query, top=10)

    found = asyncio.run(read())
    typer.echo(f"{counted(found.lines, 'line')} by {counted(found.people, 'person', 'people')}")
    if found.first and found.last:
        typer.echo(f"{stamp(found.first)} to {stamp(found.last)} (UTC)")
    for nick, lines in found.top:
        typer.echo(strip_control_chars(f"{lines:8} {nick}"))


@logs.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Copy the whole log, with the bot's memory, into FILE. The bot may be running."""
    path = log_file(load(config, data))
    with atomic_write(target, force=force) as part:
        back_up(path, part)
    typer.echo(f"{target}: {target.stat().st_size:,} bytes")


@logs.command()
def forget(
    nick: Annotated[str | None, typer.Option(help="All events under this nick.")] = None,
    account: Annotated[
        str | None, typer.Option(help="All events under this services account.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Only on this network.", show_default="all")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
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

    async def carry_out() -> Forgotten:
        async with open_log(log_address(loaded)) as database:
            log = ChatLog(database)
            if not yes and (found := await count_of(log, person)):
                question = f"Remove {found} events, and the bot's answers to them?"
                typer.confirm(question, abort=True)
            return await forget_person(log, person, loaded.data, "command line")

    gone = asyncio.run(carry_out())
    typer.echo(
        f"{gone.events} events removed, with the bot's answers to them and its quotes of them;"
        " copies and exports that you made still have them"
    )
    if not gone.is_finished:
        typer.echo(
            "not finished: a file could not be written (the log above names it); the tendrils try"
            " again every hour and at each start, or run this again",
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

    async def vacuum_log() -> None:
        async with open_log(address) as database:
            await rewrite(database)

    asyncio.run(vacuum_log())
    if isinstance(address, Path):
        typer.echo(f"{address}: {before:,} bytes before, {address.stat().st_size:,} now")
    else:
        typer.echo(f"{address}: rewritten")
