"""Bringing a database file up to date with the numbered scripts in `storage/migrations`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from storage import log_index
from storage.db.errors import NewerSchema

_INDEXED = 4  # the migration from which on events are indexed and counted as they are written


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Run the numbered migrations that the file has not seen, all in one transaction.

    Raises NewerSchema, sqlite3.Error.
    """
    scripts = _migrations()
    connection.execute("BEGIN IMMEDIATE")  # two processes may open a new file at once
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(scripts):
        raise NewerSchema(
            f"{path}: written by a newer Terrarium (version {version}, known {len(scripts)});"
            " update Terrarium or choose another data folder with --data"
        )
    for script in scripts[version:]:
        for statement in _statements(script):
            connection.execute(statement)
    if 0 < version < _INDEXED:
        log_index.rebuild(connection)
    connection.execute(f"PRAGMA user_version = {len(scripts)}")
    connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; `executescript` would end our transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _migrations() -> list[str]:
    folder = files("storage") / "migrations"
    scripts = {item.name: item for item in folder.iterdir() if item.name.endswith(".sql")}
    return [scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)]
