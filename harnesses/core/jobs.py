"""`terrarium jobs`: lists, retries and drops the jobs of tendrils."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from storage.db.database import Address, Database, other_files
from storage.queues.jobs import Jobs
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, align_columns
from terrarium.config import Config, load

jobs = typer.Typer(
    help="List, retry and drop the jobs of tendrils. The tendrils may be running.",
    no_args_is_help=True,
)

OPEN_STATES = ("pending", "paused", "waiting", "running")
FAILED_STATES = ("failed", "dead")
_MAX_PAYLOAD_CHARS = 60  # characters of a payload in the list
_HEAD = ("tendril", "number", "kind", "state", "attempts", "due", "what", "error")

Tendril = Annotated[str, typer.Argument(metavar="TENDRIL", help="Name of the tendril, as listed.")]
Number = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="Its number, as listed.")]


@jobs.command("list")
def list_(
    dead: Annotated[bool, typer.Option("--dead", help="Only jobs that have failed.")] = False,
    done: Annotated[bool, typer.Option("--done", help="Also jobs that are done.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """List the jobs of all tendrils. Times are UTC."""
    states = FAILED_STATES if dead else (*OPEN_STATES, *FAILED_STATES, *(["done"] if done else []))

    async def find() -> list[Sequence[str]]:
        found: list[Sequence[str]] = []
        for tendril, address in (await _stores(load(config, data))).items():
            async with Database.open(address) as database:
                for job in await Jobs(database).all(*states):
                    what = json.dumps(dict(job.payload))
                    if len(what) > _MAX_PAYLOAD_CHARS:
                        what = f"{what[:_MAX_PAYLOAD_CHARS]}..."
                    attempts, due = (
                        f"{job.attempts}/{job.max_attempts}",
                        f"{job.run_at:%Y-%m-%d %H:%M}",
                    )
                    row = (
                        tendril,
                        str(job.id),
                        job.kind,
                        job.state,
                        attempts,
                        due,
                        what,
                        job.error,
                    )
                    found.append(row)
        return found

    rows = asyncio.run(find())
    typer.echo(align_columns([_HEAD, *rows]) if rows else "no jobs")


@jobs.command()
def retry(
    tendril: Tendril, number: Number, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Queue a failed job again, with the jobs that depend on it."""
    if not asyncio.run(_change(load(config, data), tendril, lambda queue: queue.retry(number))):
        raise TendrilError(
            f"{tendril} has no job {number} that can be retried: `terrarium jobs list --dead` has"
            " the failed ones; if jobs depend on one another, retry the first of them"
        )
    typer.echo(f"job {number} of {tendril} is queued again; it runs within half a minute")


@jobs.command()
def drop(
    tendril: Tendril, number: Number, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Remove a job; jobs that depend on it fail. A running job is not interrupted."""
    if not asyncio.run(_change(load(config, data), tendril, lambda queue: queue.drop(number))):
        raise TendrilError(f"{tendril} has no job {number}; see `terrarium jobs list`")
    typer.echo(f"job {number} of {tendril} is dropped")


@asynccontextmanager
async def open_stores(config: Config, *opened: Database) -> AsyncIterator[Mapping[str, Database]]:
    """Open the stores of all tendrils, by the tendril's name, except those that are `opened`
    already. Raises StorageError."""
    known = {database.address: database for database in opened}
    async with AsyncExitStack() as stack:
        yield {
            name: known[address]
            if address in known
            else await stack.enter_async_context(Database.open(address))
            for name, address in (await _stores(config)).items()
        }


async def _stores(config: Config) -> dict[str, Address]:
    log = log_address(config)
    if isinstance(log, Path):
        files: dict[str, Address] = {path.stem: path for path in other_files(config.data, log)}
        return files | ({"irc": log} if log.exists() else {})
    async with Database.open(log) as database:
        return {**await database.neighbours(config.data), "irc": log}


async def _change(config: Config, tendril: str, change: Callable[[Jobs], Awaitable[bool]]) -> bool:
    stores = await _stores(config)
    if tendril not in stores:
        known = ", ".join(stores) or "none"
        raise TendrilError(f"no tendril {tendril} keeps jobs in {config.data}; there are: {known}")
    async with Database.open(stores[tendril]) as database:
        return await change(Jobs(database))
