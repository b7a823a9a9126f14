"""The command `terrarium keys`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from agent_server.metering.request_context import ANYBODY
from agent_server.settings.prices import UsageSettings
from agent_server.settings.server import ServerSettings, require_key_name
from storage.db.database import Database
from storage.settings import store_address
from storage.usage.api_keys import Key, Keys, Priority
from storage.usage.usage import UsageTable
from terrarium.command_line import ConfigFile, DataFolder, align_columns, take_options
from terrarium.config import Config, load

T = TypeVar("T")

Quota = Annotated[int | None, typer.Option(min=0, help="Maximum number; 0, the default: no limit.")]

keys = typer.Typer(
    help="Create, change, list and revoke keys of tendrils. A running server applies it at once.",
    no_args_is_help=True,
)

_KEYS = (
    "name", "key", "priority", "weight", "requests/min", "tokens/min", "tokens/day", "parallel",
    "created", "expires", "revoked",
)  # fmt: skip
_USAGE = ("day", "tendril", "model", "requests", "prompt", "cached", "completion")


def _name(text: str) -> str:
    try:
        require_key_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCommand:
    """The argument and options of `terrarium keys create` and `set`; None is not given."""

    name: Annotated[
        str, typer.Argument(metavar="NAME", callback=_name, help="Tendril that the key belongs to.")
    ]
    weight: Annotated[
        float | None,
        typer.Option(min=0.01, max=100, help="Share of a busy engine; 1 by default."),
    ] = None
    priority: Annotated[
        Priority | None,
        typer.Option(help="Highest priority of its requests; by default interactive."),
    ] = None
    requests_per_minute: Quota = None
    tokens_per_minute: Quota = None
    tokens_per_day: Quota = None
    parallel: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum of its requests that run at once; others wait."),
    ] = None
    expires: Annotated[
        int | None, typer.Option(min=0, metavar="DAYS", help="Days until it expires; 0: never.")
    ] = None
    config: ConfigFile = None
    data: DataFolder = Path("data")

    def apply(self, key: Key) -> Key:
        """Return `key` with the limits that were given; 0 removes one."""
        names = {each.name for each in fields(Key)} - {"name", "is_own", "expires"}
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        given = {name: value or None for name, value in given.items() if value is not None}
        if self.expires:
            given["expires"] = datetime.now(UTC) + timedelta(days=self.expires)
        elif self.expires == 0:
            given["expires"] = None
        return replace(key, **given)


@keys.command()
@take_options
def create(command: KeyCommand) -> None:
    """Create a key and print it, this once only. The tendril gets it as AGENT_API_KEY."""
    config = load(command.config, command.data)
    if note := _closing_note(config):
        typer.echo(note, err=True)
        # Scripts are warned on standard error, but not asked.
        if sys.stdin.isatty():
            typer.confirm("Create the key?", abort=True, err=True)
    key = command.apply(Key(command.name))
    typer.echo(_run(config, lambda database: Keys(database).create(key)))


@keys.command("set")
@take_options
def set_(command: KeyCommand) -> None:
    """Change the limits of a key; those that are not named stay as they are, 0 removes one."""

    async def change(database: Database) -> bool:
        table = Keys(database)
        valid = [each.key for each in await table.list_all() if each.revoked is None]
        found = next((key for key in valid if key.name == command.name), None)
        return found is not None and await table.change(command.apply(found))

    if not _run(load(command.config, command.data), change):
        _exit_without(command.name)
    typer.echo(f"{command.name} has its new limits")


@keys.command("list")
def list_(
    days: Annotated[int, typer.Option(min=0, help="Number of days to show.")] = 7,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """List the keys, and the usage of each tendril by UTC day and model."""
    settings = load(config, data)
    today = datetime.now(UTC).date()
    since = today - timedelta(days=days - 1)
    stored = _run(settings, lambda database: Keys(database).list_all())
    used = _run(settings, lambda database: UsageTable(database).read(since, today))
    rows: list[Sequence[str]] = [_KEYS]
    for each in stored:
        key = each.key
        limits = (key.requests_per_minute, key.tokens_per_minute, key.tokens_per_day, key.parallel)
        rows.append(
            (
                key.name,
                f"{each.hint}...",
                key.priority,
                f"{key.weight:g}",
                *("-" if limit is None else str(limit) for limit in limits),
                f"{each.created:%Y-%m-%d}",
                f"{key.expires:%Y-%m-%d}" if key.expires else "-",
                f"{each.revoked:%Y-%m-%d}" if each.revoked else "-",
            )
        )
    typer.echo(align_columns(rows) if stored else "no keys")
    if used:
        currency = settings.section(UsageSettings).currency
        rows = [(*_USAGE, currency)]
        for spent, amount in used:
            counts = (amount.requests, amount.prompt, amount.cached, amount.completion)
            whose = (spent.day.isoformat(), spent.tendril, spent.model)
            rows.append((*whose, *map(str, counts), f"{amount.cost:.4f}"))
        typer.echo("\n" + align_columns(rows))


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Tendril whose key to revoke.")],
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Revoke a key: requests that still send it get 401."""
    if not _run(load(config, data), lambda database: Keys(database).revoke(name)):
        _exit_without(name)
    typer.echo(f"{name} no longer has a key")


def _exit_without(name: str) -> NoReturn:
    typer.echo(f"terrarium: there is no key {name}", err=True)
    raise typer.Exit(1)


def _run(config: Config, work: Callable[[Database], Awaitable[T]]) -> T:
    """Return the result of `work` with the server's database."""

    async def run() -> T:
        async with Database.open(store_address(config, "server")) as database:
            return await work(database)

    return asyncio.run(run())


def _closing_note(config: Config) -> str:
    """Return the warning that the first key closes the server to requests without one, "" if the
    server is closed already."""
    server = config.section(ServerSettings)
    if server.admin_key is not None or server.keys:
        return ""
    if _run(config, lambda database: Keys(database).exist()):
        return ""
    today = datetime.now(UTC).date()
    since = today - timedelta(days=6)
    used = _run(config, lambda database: UsageTable(database).read(since, today, ANYBODY.name))
    note = (
        "From now on this server answers nobody without a key. What `terrarium up` starts, and "
        "commands such as `terrarium chat` beside it, have keys of their own."
    )
    if anonymous := sum(amount.requests for _, amount in used):
        requests = "1 request" if anonymous == 1 else f"{anonymous:,} requests"
        note += f" It has answered {requests} without a key in the last 7 days: these get 401."
    return note
