"""The command `terrarium keys`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from agent_server.metering.request_context import ANYBODY
from agent_server.settings.key_names import require_key_name
from agent_server.settings.prices import UsageSettings
from agent_server.settings.server import ServerSettings
from storage.db.database import Database
from storage.settings import store_address
from storage.usage.api_keys import ApiKeyRow, Key, Keys, Priority
from storage.usage.usage import UsageAmount, UsageKey, UsageTable
from terrarium.command_line import align_columns, take_options
from terrarium.config import Config, load

ConfigFile = Annotated[Path | None, typer.Option("--config", help="terrarium.toml to read")]
DataFolder = Annotated[Path, typer.Option("--data", help="folder for all stored data")]
Quota = Annotated[int | None, typer.Option(min=1, help="At most so many; by default any number.")]

keys = typer.Typer(
    help="Make, list and revoke the keys of tendrils. They count at once in a running server.",
    no_args_is_help=True,
)


def _name(text: str) -> str:
    try:
        require_key_name(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKeyCommand:
    """The argument and options of `terrarium keys create`."""

    name: Annotated[str, typer.Argument(metavar="NAME", callback=_name, help="Whose key it is.")]
    weight: Annotated[
        float, typer.Option(min=0.01, max=100, help="Its share of a busy engine against others.")
    ] = 1.0
    priority: Annotated[Priority, typer.Option(help="The highest that its requests can have.")] = (
        "interactive"
    )
    requests_per_minute: Quota = None
    tokens_per_minute: Quota = None
    tokens_per_day: Quota = None
    parallel: Annotated[
        int | None, typer.Option(min=1, help="So many of its requests run at once, others wait.")
    ] = None
    config: ConfigFile = None
    data: DataFolder = Path("data")

    def key(self) -> Key:
        """Return the key to create."""
        return Key(
            self.name,
            self.weight,
            self.priority,
            self.requests_per_minute,
            self.tokens_per_minute,
            self.tokens_per_day,
            self.parallel,
        )


@keys.command()
@take_options
def create(command: CreateKeyCommand) -> None:
    """Create a key and print it, this once only. The tendril gets it as AGENT_API_KEY."""
    config = load(command.config, command.data)
    if asyncio.run(_is_open(config)):
        typer.echo(_closing_note(asyncio.run(_anonymous_requests(config))), err=True)
        # Scripts are warned on standard error, but not asked.
        if sys.stdin.isatty():
            typer.confirm("Make the key?", abort=True, err=True)
    typer.echo(asyncio.run(_create(config, command.key())))


@keys.command("list")
def list_(
    days: Annotated[int, typer.Option(min=0, help="Show the use of so many days.")] = 7,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """List the keys, and the usage of each tendril by UTC day and model."""
    settings = load(config, data)
    stored, used = asyncio.run(_list_keys(settings, days))
    typer.echo(align_columns([_KEYS, *map(_key_row, stored)]) if stored else "no keys")
    if used:
        currency = settings.section(UsageSettings).currency
        rows = [_usage_row(usage_key, amount) for usage_key, amount in used]
        typer.echo("\n" + align_columns([(*_USAGE, currency), *rows]))


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key ends.")],
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Revoke a key: requests that still send it get 401."""
    if not asyncio.run(_revoke(load(config, data), name)):
        typer.echo(f"terrarium: there is no key {name}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{name} has no key any more")


async def _create(config: Config, key: Key) -> str:
    async with Database.open(store_address(config, "server")) as database:
        return await Keys(database).create(key)


async def _is_open(config: Config) -> bool:
    """Return whether the server currently answers without a key."""
    server = config.section(ServerSettings)
    if server.admin_key is not None or server.keys:
        return False
    async with Database.open(store_address(config, "server")) as database:
        return not await Keys(database).exist()


async def _anonymous_requests(config: Config) -> int:
    """Return the number of requests answered without a key in the last seven days."""
    today = datetime.now(UTC).date()
    async with Database.open(store_address(config, "server")) as database:
        used = await UsageTable(database).read(today - timedelta(days=6), today, ANYBODY.name)
    return sum(amount.requests for _, amount in used)


def _closing_note(anonymous: int) -> str:
    """Return the warning that the first key closes the server to requests without one."""
    note = (
        "From now on this server answers nobody without a key. What `terrarium up` starts, and "
        "commands such as `terrarium chat` beside it, have keys of their own."
    )
    if anonymous:
        requests = "1 request" if anonymous == 1 else f"{anonymous:,} requests"
        note += f" It has answered {requests} without a key in the last 7 days: these get 401."
    return note


async def _list_keys(
    config: Config, days: int
) -> tuple[Sequence[ApiKeyRow], Sequence[tuple[UsageKey, UsageAmount]]]:
    today = datetime.now(UTC).date()
    async with Database.open(store_address(config, "server")) as database:
        used = await UsageTable(database).read(today - timedelta(days=days - 1), today)
        return await Keys(database).list_all(), used


async def _revoke(config: Config, name: str) -> bool:
    async with Database.open(store_address(config, "server")) as database:
        return await Keys(database).revoke(name)


_KEYS = (
    "name", "key", "priority", "weight", "requests/min", "tokens/min", "tokens/day", "parallel",
    "created", "revoked",
)  # fmt: skip
_USAGE = ("day", "tendril", "model", "requests", "prompt", "cached", "completion")


def _key_row(stored: ApiKeyRow) -> Sequence[str]:
    key = stored.key
    limits = (key.requests_per_minute, key.tokens_per_minute, key.tokens_per_day, key.parallel)
    return (
        key.name,
        f"{stored.hint}...",
        key.priority,
        f"{key.weight:g}",
        *("-" if limit is None else str(limit) for limit in limits),
        f"{stored.created:%Y-%m-%d}",
        f"{stored.revoked:%Y-%m-%d}" if stored.revoked else "-",
    )


def _usage_row(usage_key: UsageKey, amount: UsageAmount) -> Sequence[str]:
    numbers = (amount.requests, amount.prompt, amount.cached, amount.completion)
    return (
        usage_key.day.isoformat(),
        usage_key.tendril,
        usage_key.model,
        *(str(number) for number in numbers),
        f"{amount.cost:.4f}",
    )
