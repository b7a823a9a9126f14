"""`terrarium storage migrate`: copies all stored data from files into PostgreSQL or back.

Everything has to be stopped. Each store, a file or a schema, is copied and compared in one
transaction, so an interrupted command begins with the store at which it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from harnesses.core.errors import TendrilError
from harnesses.core.launcher.tendrils import hold_stopped
from storage.db.address import Address, PostgresSchema
from storage.db.database import NEEDS_EXTRA, Database, other_files
from storage.db.errors import Unavailable
from storage.settings import StorageSettings, log_path
from storage.transfer import copy_store
from terrarium.command_line import ConfigFile, DataFolder
from terrarium.config import Config, load

storage = typer.Typer(help="Move all data between files and PostgreSQL.", no_args_is_help=True)

_SCHEMES = ("postgresql://", "postgres://")
_LOG = "irc"
_STOP = "stop everything, and run the same command again"


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
    """Copy all data into a PostgreSQL database, or from there back into files.

    Stop everything first. After an interruption run the same command again.
    """
    loaded = load(config, data)
    copied = asyncio.run(copy_all(loaded, to, lambda text: typer.echo(text, err=True)))
    target = PostgresSchema(to, "all stores") if to.startswith(_SCHEMES) else to
    typer.echo(f"copied {', '.join(copied)} to {target}")  # without a password
    if to.startswith(_SCHEMES):
        typer.echo(
            'Now set [storage] url = "..." (or STORAGE_URL) and start again. The files in'
            f" {data} are unchanged. Requests to be forgotten do not reach them from now on, so"
            " delete them once all is well."
        )
        return
    old = ", ".join(path.name for path in sorted(data.glob("*.db")))
    aside = f" the old {old} with -wal and -shm files out of {data}, then" if old else ""
    is_there = Path(to).absolute() == data.absolute()
    move = "" if is_there else f" move{aside} all files of {to} into {data}"
    typer.echo(
        f"Now remove [storage] url (or STORAGE_URL),{move} and start again. The database is"
        " unchanged. Requests to be forgotten do not reach it from now on, so drop it once all is"
        " well."
    )


async def copy_all(config: Config, to: str, report: Callable[[str], None]) -> Sequence[str]:
    """Copy every store to a PostgreSQL URL or into a folder; return the names of the stores.

    `report` receives lines about the progress. Raises TendrilError if there is nothing to copy or a
    process is running; and StorageError.
    """
    pairs = await _pairs(config, to)
    if not pairs:
        raise TendrilError(f"there is nothing to copy in {config.data}")
    try:
        with hold_stopped(config.data, "terrarium storage migrate"):
            for source, _ in pairs.values():
                # Locks and status files cover this data folder only; PostgreSQL lists all sessions.
                if isinstance(source, PostgresSchema):
                    from storage.db.postgres.schemas import is_in_use

                    if await asyncio.to_thread(is_in_use, source):
                        raise TendrilError(f"a process somewhere uses {source}; {_STOP}")
            async with AsyncExitStack() as opened:
                sources = {}
                for name, (address, _) in pairs.items():
                    sources[name] = await opened.enter_async_context(Database.open(address))
                    # Keeps commands that hold no lock, such as `logs forget`, from writing.
                    await opened.enter_async_context(sources[name].exclusive())
                for name, (_, target) in pairs.items():

                    def progress(line: str, name: str = name) -> None:
                        report(f"{name}: {line}")

                    async with Database.open(target) as there:
                        rows = await copy_store(sources[name], there, progress)
                    report(f"{name}: copied and compared, {rows:,} rows")
    except Unavailable as error:
        raise TendrilError(
            f"{error}; nothing is lost: once the cause is fixed, run the same command again"
        ) from error
    return list(pairs)


async def _pairs(config: Config, to: str) -> Mapping[str, tuple[Address, Address]]:
    """Return the source and target of each store, by name. Raises TendrilError and StorageError."""
    url = config.section(StorageSettings).url
    if to.startswith(_SCHEMES):
        if url is not None:
            raise TendrilError("everything is in PostgreSQL already ([storage] url)")
        log = log_path(config)
        files = {path.stem: path for path in other_files(config.data, log)}
        if _LOG in files:
            raise TendrilError(f"{files[_LOG]} is not the log, which is {log}; move it away first")
        files |= {_LOG: log} if log.exists() else {}
        return {name: (path, PostgresSchema(to, name)) for name, path in sorted(files.items())}
    if url is None:
        raise TendrilError(
            "everything is in files; --to takes a URL: postgresql://USER@HOST/DATABASE"
        )
    try:
        from storage.db.postgres.schemas import schemas
    except ImportError as error:
        raise TendrilError(NEEDS_EXTRA) from error
    found = await asyncio.to_thread(schemas, url.get_secret_value())
    return {schema.name: (schema, Path(to) / f"{schema.name}.db") for schema in found}
