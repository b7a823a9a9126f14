"""`terrarium storage migrate`: moves all stored data from files into PostgreSQL or back.

Each store, a file or a schema, is copied and compared while it is in use. Once all processes have
stopped, the rows written since are copied too, so the downtime is short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from harnesses.core.launcher.stopped import hold_stopped
from harnesses.core.options import ConfigFile, DataFolder
from storage.db.address import Address, PostgresSchema
from storage.db.database import NEEDS_EXTRA, Database
from storage.db.errors import Unavailable
from storage.db.neighbours import other_files
from storage.db.process_lock import AlreadyRunning
from storage.settings import StorageSettings, log_path
from storage.transfer.transfer import Transfer
from terrarium.config import Config, load

storage = typer.Typer(help="Where all data is stored.", no_args_is_help=True)

_SCHEMES = ("postgresql://", "postgres://")
_LOG = "irc"
_RUN_AGAIN = "stop it and run the same command again, which copies what has been written since"
_CLOSE_TIMEOUT = 5.0  # seconds for PostgreSQL to notice that our own connections are gone

Report = Callable[[str], None]


@storage.callback()
def _group() -> None:
    """Make Typer treat `migrate` as a subcommand, although it is the only one."""


@storage.command()
def migrate(
    to: Annotated[
        str, typer.Option(metavar="URL|DIR", help="postgresql://..., or an empty folder for files.")
    ],
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Move all data into a PostgreSQL database, or from there back into files.

    It copies and compares while everything runs. Then stop everything and run it again: that copies
    what was written since. After an interruption, the same command continues where it stopped.
    """
    loaded = load(config, data)
    moved = asyncio.run(move_all(loaded, to, lambda text: typer.echo(text, err=True)))
    typer.echo(f"moved {', '.join(moved)} to {_shown(to)}")
    typer.echo(_next_step(loaded, to))


async def move_all(config: Config, to: str, report: Report) -> Sequence[str]:
    """Move every store to a PostgreSQL URL or into a folder; return the names of the stores.

    `report` receives lines about the progress. Raises TendrilError if there is nothing to move or,
    after copying, if a process is still running; and StorageError.
    """
    pairs = await _pairs(config, to)
    if not pairs:
        raise TendrilError(f"there is nothing to move in {config.data}")
    has_begun = False
    try:
        for name, (source, target) in pairs.items():
            async with Database.open(source) as here, Database.open(target) as there:
                transfer = await Transfer.begin(here, there)
                has_begun = True
                await _copy(name, transfer, report)
        with _nobody_starts(config):
            await _require_unused(pairs)
            for name, (source, target) in pairs.items():
                async with Database.open(source) as here, Database.open(target) as there:
                    transfer = await Transfer.begin(here, there)
                    if not transfer.is_over or await transfer.reopen():
                        rows = await transfer.finish()
                        report(f"{name}: finished, {sum(rows.values()):,} rows")
    except Unavailable as error:
        if not has_begun:
            raise
        raise TendrilError(
            f"{error}; nothing is lost: once the cause is fixed, run the same command again;"
            " it continues where it stopped"
        ) from error
    return list(pairs)


@contextmanager
def _nobody_starts(config: Config) -> Iterator[None]:
    """Keep every process that writes stores from starting on the data folder. Raises TendrilError
    if one runs, and Unavailable."""
    try:
        with hold_stopped(config.data, "terrarium storage migrate"):
            yield
    except AlreadyRunning as error:
        raise TendrilError(
            f"all is copied, but `{error.command}` (process {error.pid}) runs on {config.data};"
            f" {_RUN_AGAIN}"
        ) from error


async def _copy(name: str, transfer: Transfer, report: Report) -> None:
    if not transfer.is_over:
        await transfer.require_untouched()
    elif not await transfer.reopen():
        report(f"{name}: moved before, and nothing was written to it since")
        return
    steps: dict[str, int] = {}
    while (step := await transfer.step()) is not None:
        if step.rows:
            steps[step.table] = steps.get(step.table, 0) + 1
            report(f"{name}: {step.table}, step {steps[step.table]}")
    rows = await transfer.verify()
    report(f"{name}: copied and compared, {sum(rows.values()):,} rows")


async def _pairs(config: Config, to: str) -> Mapping[str, tuple[Address, Address]]:
    """Return the source and target address of each store, by name. Raises TendrilError and
    StorageError."""
    url = config.section(StorageSettings).url
    if to.startswith(_SCHEMES):
        if url is not None:
            raise TendrilError("everything is in PostgreSQL already ([storage] url)")
        return {name: (path, PostgresSchema(to, name)) for name, path in _files(config)}
    if url is None:
        raise TendrilError(
            "everything is in files; --to takes a URL: postgresql://USER@HOST/DATABASE"
        )
    return {
        schema.name: (schema, Path(to) / f"{schema.name}.db")
        for schema in await _schemas(url.get_secret_value())
    }


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of each store. Raises TendrilError if two have the same name."""
    log = log_path(config)
    if log.exists():
        yield _LOG, log
    for path in other_files(config.data, log):
        if path.stem == _LOG:
            raise TendrilError(f"{path} is not the log, which is {log}; move it away first")
        yield path.stem, path


async def _schemas(url: str) -> Sequence[PostgresSchema]:
    try:
        from storage.db.postgres.reading import schemas
    except ImportError as error:
        raise TendrilError(NEEDS_EXTRA) from error
    return await asyncio.to_thread(schemas, url)


async def _require_unused(pairs: Mapping[str, tuple[Address, Address]]) -> None:
    """Raise TendrilError if a process on any machine uses the schemas to move."""
    # Locks and status files cover this data folder only; PostgreSQL lists all sessions.
    for source, _ in pairs.values():
        if isinstance(source, PostgresSchema):
            from storage.db.postgres.reading import is_in_use

            if await asyncio.to_thread(is_in_use, source, _CLOSE_TIMEOUT):
                raise TendrilError(
                    f"all is copied, but a process somewhere uses {source}; {_RUN_AGAIN}"
                )


def _shown(to: str) -> str:
    """Return the target for display, without a password."""
    return str(PostgresSchema(to, "all stores")) if to.startswith(_SCHEMES) else to


def _next_step(config: Config, to: str) -> str:
    if to.startswith(_SCHEMES):
        return (
            'Now set [storage] url = "..." (or STORAGE_URL) and start again. The files in'
            f" {config.data} are as they were; nothing that people ask to be forgotten from now on"
            " is removed from them, so delete them once all is well."
        )
    old = ", ".join(path.name for path in sorted(config.data.glob("*.db")))
    aside = f" the old {old} with -wal and -shm files out of {config.data}, then" if old else ""
    move = f" move{aside} all files of {to} into {config.data}"
    return (
        "Now remove [storage] url (or STORAGE_URL),"
        + ("" if Path(to).absolute() == config.data.absolute() else move)
        + " and start again. The database is as it was; nothing that people ask to be forgotten"
        " from now on is removed from it, so drop it once all is well."
    )
