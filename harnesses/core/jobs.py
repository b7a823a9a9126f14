"""`terrarium jobs`: the jobs, cron jobs and reminders of tendrils."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from harnesses.core.services.reminders import REMINDER_JOBS
from harnesses.core.tasks import TaskAction, TaskKind, act, list_tasks
from storage.db.database import Address, Database, other_files
from storage.queues.jobs import FAILED_STATES, OPEN_STATES, Jobs
from storage.settings import log_address
from terrarium.command_line import ConfigFile, DataFolder, align_columns
from terrarium.config import Config, load

jobs = typer.Typer(
    help="List, run, pause, retry and drop the jobs of tendrils. The tendrils may be running.",
    no_args_is_help=True,
)

_MAX_PAYLOAD_CHARS = 60  # characters of a payload in the list
_HEAD = ("tendril", "name", "kind", "state", "attempts", "due", "what", "error")

Tendril = Annotated[str, typer.Argument(metavar="TENDRIL", help="Name of the tendril, as listed.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name or number, as listed.")]
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
        async with open_stores(load(config, data)) as stores:
            for task in () if dead else await list_tasks(stores, (), is_admin=True):
                if task.kind is not TaskKind.JOB:
                    due = f"{task.due:%Y-%m-%d %H:%M}" if task.due else ""
                    found.append(
                        (task.store, task.name, task.kind, task.state, "", due, task.text, "")
                    )
            for tendril, database in stores.items():
                for job in await Jobs(database).all(*states):
                    if job.kind in REMINDER_JOBS and job.state in OPEN_STATES:
                        continue
                    what = json.dumps(dict(job.payload))
                    if len(what) > _MAX_PAYLOAD_CHARS:
                        what = f"{what[:_MAX_PAYLOAD_CHARS]}..."
                    attempts = f"{job.attempts}/{job.max_attempts}"
                    due = f"{job.run_at:%Y-%m-%d %H:%M}"
                    row = (tendril, str(job.id), job.kind, job.state, attempts, due, what)
                    found.append((*row, job.error))
        return found

    rows = asyncio.run(find())
    typer.echo(align_columns([_HEAD, *rows]) if rows else "no jobs")


@jobs.command()
def run(
    tendril: Tendril, name: Name, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Run a job, a cron job or a reminder now."""
    asyncio.run(_act(load(config, data), tendril, name, TaskAction.RUN))
    typer.echo(f"{name} of {tendril} runs within half a minute")


@jobs.command()
def pause(
    tendril: Tendril, name: Name, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Pause a job, a cron job or a reminder, until it is resumed."""
    asyncio.run(_act(load(config, data), tendril, name, TaskAction.PAUSE))
    typer.echo(f"{name} of {tendril} is paused")


@jobs.command()
def resume(
    tendril: Tendril, name: Name, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Resume what is paused."""
    asyncio.run(_act(load(config, data), tendril, name, TaskAction.RESUME))
    typer.echo(f"{name} of {tendril} is resumed")


@jobs.command()
def retry(
    tendril: Tendril, number: Number, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Queue a failed job again, with the jobs that depend on it."""
    asyncio.run(_act(load(config, data), tendril, str(number), TaskAction.RETRY))
    typer.echo(f"job {number} of {tendril} is queued again; it runs within half a minute")


@jobs.command()
def drop(
    tendril: Tendril, number: Number, config: ConfigFile = None, data: DataFolder = Path("data")
) -> None:
    """Remove a job; jobs that depend on it fail. A running job is not interrupted."""

    async def remove(settings: Config) -> bool:
        async with open_stores(settings) as stores:
            return await Jobs(_store(settings, stores, tendril)).drop(number)

    if not asyncio.run(remove(load(config, data))):
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


def _store(config: Config, stores: Mapping[str, Database], tendril: str) -> Database:
    if tendril not in stores:
        known = ", ".join(stores) or "none"
        raise TendrilError(f"no tendril {tendril} keeps jobs in {config.data}; there are: {known}")
    return stores[tendril]


async def _act(config: Config, tendril: str, name: str, action: TaskAction) -> None:
    async with open_stores(config) as stores:
        _store(config, stores, tendril)
        for task in await list_tasks(stores, (), is_admin=True):
            if (task.store, task.name) == (tendril, name) and await act(
                stores, task, action, datetime.now(UTC)
            ):
                return
    hint = "if jobs depend on one another, retry the first of them" * (action is TaskAction.RETRY)
    raise TendrilError(
        f"{tendril} has no {name} to {action}: see `terrarium jobs list`" + f"; {hint}" * bool(hint)
    )
