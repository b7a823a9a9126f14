"""Migration of SQLite files by the numbered scripts in `storage/migrations`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import structlog

from storage import log_index
from storage.connection import Connection
from storage.db.errors import NewerSchema, Unavailable
from storage.db.migration_copy import copy_before

# The migration that added the derived tables, which are filled as events are written.
_FIRST_INDEXED_VERSION = 4


# Milliseconds to wait for another process that migrates the same file.
_MIGRATION_TIMEOUT_MS = 600_000
_log = structlog.get_logger()


def migrate(connection: Connection, path: Path) -> None:
    """Run all pending migrations in one transaction.

    A file that already has tables is copied first (`storage.db.migration_copy`); a file that is up
    to date is not written to. Raises NewerSchema, Unavailable, sqlite3.Error.
    """
    scripts = migrations()
    if _version(connection, path, len(scripts)) == len(scripts):
        return
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {_MIGRATION_TIMEOUT_MS}")
    connection.execute("BEGIN IMMEDIATE")  # two processes may open the same file at once
    try:
        # Read it again under the write lock: another process may have migrated the file meanwhile.
        version = _version(connection, path, len(scripts))
        if 0 < version < len(scripts):
            _log.info("storage.migrating", file=path.name, version=version, to=len(scripts))
            copy_before(path, len(scripts))
        _run(connection, scripts, version)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors roll back by themselves, such as SQLITE_FULL
            connection.execute("ROLLBACK")
        raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


def require_newest(connection: Connection, path: Path) -> None:
    """Raise Unavailable if a file needs a migration, and NewerSchema if its version is unknown."""
    newest = len(migrations())
    try:
        version = _version(connection, path, newest)
    except sqlite3.Error as error:
        raise Unavailable(f"{path}: cannot be read: {error}") from error
    if version < newest:
        raise Unavailable(
            f"{path}: written by an older Terrarium, and cannot be changed here; copy it into a"
            " folder that can be written, and name that with --data"
        )


def _version(connection: Connection, path: Path, newest: int) -> int:
    """Return the schema version of a file: the number of its last migration. Raises NewerSchema."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > newest:
        raise NewerSchema(
            f"{path}: written by a newer Terrarium (version {version}, known {newest});"
            " update Terrarium or choose another data folder with --data"
        )
    return version


def _run(connection: Connection, scripts: Sequence[str], version: int) -> None:
    for script in scripts[version:]:
        for statement in statements(script):
            connection.execute(statement)
    if (
        0 < version < _FIRST_INDEXED_VERSION
    ):  # events of older versions were not counted; a new file has none
        log_index.rebuild(connection)
    connection.execute(f"PRAGMA user_version = {len(scripts)}")


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, to be run one by one inside a transaction.

    `executescript` would commit the open transaction first.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        # False at a semicolon within the body of a trigger.
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def migrations() -> list[str]:
    """Return the text of the numbered scripts, in order; the first is that of migration 1."""
    folder = files("storage") / "migrations"
    scripts = {item.name: item for item in folder.iterdir() if item.name.endswith(".sql")}
    return [scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)]
