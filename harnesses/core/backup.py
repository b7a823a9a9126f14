"""`terrarium backup` and `terrarium restore`: all stored data, as one folder.

A backup holds a copy of each SQLite file and of every other file in the data folder, such as
personas and skills, and `backup.json` with their SHA-256 digests. Models, the state of running
processes (`run/`) and copies from before a migration are left out.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ValidationError

from harnesses.core.errors import TendrilError
from harnesses.core.launcher.tendrils import hold_stopped
from harnesses.core.tendril.status import BACKUP_MARK
from storage.db.integrity import back_up
from storage.db.private_files import make_file, sync
from storage.settings import log_file, log_path
from terrarium import __version__
from terrarium.command_line import ConfigFile, DataFolder
from terrarium.config import Config, load

MANIFEST = "backup.json"
LOG = "irc.db"
"""The name of the log in a backup, whatever its path in `[storage] db_path`."""

_EXCLUDED = ("run", "models")
_DATED = "terrarium-????-??-??T??????Z"
"""The folders of `backup --keep`, as a pattern of glob."""

_EXCLUDED_NAME = re.compile(r"\.db\.before-|(-wal|-shm|-journal|\.part|\.tmp)$")


class Manifest(BaseModel):
    """The contents of `backup.json`; `files` maps relative paths to hexadecimal SHA-256 digests."""

    terrarium: str
    time: datetime
    files: dict[str, str]


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="Make a dated folder in DIR, and keep only the newest N of them."),
    ] = None,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Copy all stored data into the new folder DIR. Terrarium may be running."""
    target = folder / f"terrarium-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}" if keep else folder
    made = back_up_all(load(config, data), target)
    typer.echo(f"{target}: {len(made.files)} files")
    if keep:
        # Interrupted ones, which have no manifest, do not count and are removed too.
        dated = sorted(each for each in folder.glob(_DATED) if each.is_dir())
        whole = [each for each in dated if (each / MANIFEST).exists() and not each.is_symlink()]
        for old in dated:
            if old < target and old not in whole[-keep:] and not old.is_symlink():
                shutil.rmtree(old)
                typer.echo(f"{old}: removed")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by `backup`.")],
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    config: ConfigFile = None,
    data: DataFolder = Path("data"),
) -> None:
    """Restore a backup into the data folder. Nothing may be running on it."""
    made = restore_all(load(config, data), folder, force=force)
    typer.echo(f"{data}: {len(made.files)} files of {made.time:%Y-%m-%d %H:%M} UTC")


def back_up_all(config: Config, folder: Path) -> Manifest:
    """Copy all stored data into the new `folder`. Processes may be running.

    Each SQLite file is copied as a consistent snapshot, but the snapshots of two files are taken at
    slightly different times. Only the owner can read the copies. Raises TendrilError, and
    Unavailable if a file cannot be read or the data is in PostgreSQL.
    """
    log, databases = log_file(config), dict[str, Path]()
    for path in sorted(config.data.glob("*.db")):
        if path.resolve() != log.resolve():
            databases[path.name] = path
    if LOG in databases:
        raise TendrilError(f"{databases[LOG]} is not the log, which is {log}; move it away first")
    if log.exists():
        databases[LOG] = log
    if not databases:
        raise TendrilError(f"there is nothing to back up in {config.data}")
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise TendrilError(f"{folder} already exists; name a new folder") from error
    except OSError as error:
        raise TendrilError(f"{folder} cannot be created: {error.strerror}") from error
    files: dict[str, str] = {}
    try:
        for name, source in databases.items():
            make_file(folder / name)  # first: SQLite would create it with the umask's mode
            back_up(source, folder / name)
        for source in sorted(config.data.rglob("*")):
            path = source.relative_to(config.data)
            is_database = source.resolve() == log.resolve() or source in databases.values()
            if is_database or path.parts[0] in _EXCLUDED or _EXCLUDED_NAME.search(path.name):
                continue
            if source.is_file() and not source.is_symlink():
                (folder / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                make_file(folder / path)
                shutil.copyfile(source, folder / path)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            files[path.relative_to(folder).as_posix()] = _sha256(path)
            sync(path)
        # The manifest is written last: without it an interrupted backup cannot be restored.
        manifest = Manifest(terrarium=__version__, time=datetime.now(UTC), files=files)
        make_file(folder / MANIFEST)
        (folder / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        sync(folder / MANIFEST)
        mark = config.data / BACKUP_MARK
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
    except OSError as error:
        raise TendrilError(
            f"{folder} is incomplete, remove it: {error.strerror or error}"
        ) from error
    return manifest


def restore_all(config: Config, folder: Path, *, force: bool) -> Manifest:
    """Restore the files of a backup into the data folder.

    All files are checked before the first is replaced. Raises TendrilError if one is damaged or
    missing, if a process runs on the data folder, or if a target exists and `force` is False.
    """
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except OSError as error:
        raise TendrilError(f"{folder} is not a backup: it has no {MANIFEST}") from error
    except ValidationError as error:
        raise TendrilError(f"{folder / MANIFEST} cannot be read; choose another backup") from error
    for name, digest in manifest.files.items():
        path = folder / name
        # A forged manifest must not make `restore` write outside the data folder, by "../" or an
        # absolute path.
        if not path.resolve().is_relative_to(folder.resolve()):
            raise TendrilError(f"{folder / MANIFEST} names {name}, which is outside the backup")
        if not path.is_file() or _sha256(path) != digest:
            raise TendrilError(f"{path} is damaged or missing; nothing was restored")
        if path.suffix == ".db":
            try:
                uri = f"{path.absolute().as_uri()}?mode=ro"
                with closing(sqlite3.connect(uri, uri=True)) as database:
                    found = database.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.Error as error:
                raise TendrilError(f"{path} is damaged: {error}; nothing was restored") from error
            if found != ("ok",):
                raise TendrilError(f"{path} is damaged; nothing was restored")
    data = config.data
    targets = {name: log_path(config) if name == LOG else data / name for name in manifest.files}
    try:
        with hold_stopped(data, "terrarium restore"):
            there = [target for target in targets.values() if target.exists()]
            if there and not force:
                raise TendrilError(f"{there[0]} already exists; --force replaces existing files")
            for name, target in targets.items():
                _put(folder / name, target)
    except OSError as error:
        raise TendrilError(
            f"not all files were restored; run the command again: {error.strerror or error}"
        ) from error
    return manifest


def _put(source: Path, target: Path) -> None:
    """Replace `target` by a copy of `source`, atomically and durably. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    make_file(part)
    shutil.copyfile(source, part)
    sync(part)  # or a crash after the rename could leave an empty file
    wal = target.with_name(f"{target.name}-wal")
    # SQLite could replay the WAL of the old database into the new one and corrupt it
    # (https://www.sqlite.org/howtocorrupt.html). A checkpoint first, so that the old database is
    # complete without its WAL, should a crash prevent the rename.
    if wal.exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(target)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in (wal, target.with_name(f"{target.name}-shm")):
        path.unlink(missing_ok=True)
    part.replace(target)
    sync(target.parent)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
