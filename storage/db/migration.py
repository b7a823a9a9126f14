"""Migration of databases by the numbered scripts in `storage/migrations`.

`0029_initial.sql` creates the tables; each script with a greater number changes them. A script is
written once, in SQLite's dialect, and translated for PostgreSQL (`storage.db.postgres.schemas`).
What only one of the databases needs is in a script of the same number in `migrations/sqlite` or
`migrations/postgres`, which runs after it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path

import structlog

from storage.connection import Connection, Dialect
from storage.db.address import Address
from storage.db.errors import NewerSchema, OlderSchema, Unavailable

FOLDER: Traversable = files("storage") / "migrations"
"""The folder of the scripts."""

# Milliseconds to wait for another process that migrates the same file.
_MIGRATION_TIMEOUT_MS = 600_000
_log = structlog.get_logger()


def migrate(connection: Connection, path: Path, folder: Traversable = FOLDER) -> None:
    """Run all pending migrations of an SQLite file, if there are any, in one transaction; in a new
    file, create what they leave. Raises NewerSchema, OlderSchema, sqlite3.Error."""
    if not pending_migrations(path, _version(connection), Dialect.SQLITE, folder):
        return
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {_MIGRATION_TIMEOUT_MS}")
    connection.execute("BEGIN IMMEDIATE")  # two processes may open the same file at once
    try:
        # Read again under the write lock: another process may have migrated the file meanwhile.
        version = _version(connection)
        scripts = pending_migrations(path, version, Dialect.SQLITE, folder)
        if not version:
            for statement in _statements_of_new_file(tuple(script for _, script in scripts)):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {scripts[-1][0]}")
            scripts = []
        for number, script in scripts:
            _log.info("storage.migrating", file=path.name, version=version, to=number)
            for statement in statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors roll back by themselves, such as SQLITE_FULL
            connection.execute("ROLLBACK")
        raise
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


@cache
def _statements_of_new_file(scripts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the statements that create what all scripts leave in a new file.

    The scripts change and drop what earlier ones create, which takes seven times as long as to
    create the result: a process runs them once, in memory, for all files that it creates.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        for script in scripts:
            memory.executescript(script)
        dump = tuple(memory.iterdump())
    return tuple(each for each in dump if each not in ("BEGIN TRANSACTION;", "COMMIT;"))


def require_newest(connection: Connection, path: Path) -> None:
    """Raise Unavailable if a file needs a migration; NewerSchema, OlderSchema."""
    try:
        is_pending = pending_migrations(path, _version(connection), Dialect.SQLITE)
    except sqlite3.Error as error:
        raise Unavailable(f"{path}: cannot be read: {error}") from error
    if is_pending:
        raise Unavailable(
            f"{path}: written by an older Terrarium, and cannot be changed here; copy it into a"
            " folder that can be written, and name that with --data"
        )


def _version(connection: Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def pending_migrations(
    address: Address, version: int, dialect: Dialect, folder: Traversable = FOLDER
) -> list[tuple[int, str]]:
    """Return numbers and scripts of the migrations that a database lacks after `version`, in order;
    0 is that of one without tables. Raises NewerSchema, OlderSchema."""
    scripts: dict[int, str] = {}
    for part in (folder, folder / str(dialect)):
        for item in part.iterdir():
            if item.name.endswith(".sql"):
                number = int(item.name[:4])
                scripts[number] = scripts.get(number, "") + item.read_text("utf-8") + "\n"
    oldest, newest = min(scripts), max(scripts)
    if version > newest:
        raise NewerSchema(
            f"{address}: written by a newer Terrarium (version {version}, known {newest}); update"
            " Terrarium, or choose another data folder or database"
        )
    if 0 < version < oldest:
        raise OlderSchema(
            f"{address}: written by an older Terrarium (version {version}) than this one can read;"
            " start Terrarium 0.1.0 of commit 52bb8351 with it once, which migrates it"
            " (docs/upgrading.md); nothing was changed"
        )
    return [(number, scripts[number]) for number in sorted(scripts) if number > version]


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit the open transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        # False at a semicolon within the body of a trigger.
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
