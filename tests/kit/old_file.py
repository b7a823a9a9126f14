"""Database files as earlier versions wrote them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import storage
from storage.db.sqlite import SqliteConnection

MIGRATIONS = Path(storage.__file__).parent / "migrations"


def newest_version() -> int:
    """Return the current schema version."""
    return len(list(MIGRATIONS.glob("*.sql")))


@contextmanager
def file_of_version(path: Path, version: int) -> Iterator[SqliteConnection]:
    """Create a database with the schema of `version`; commit and close it on exit."""
    with closing(sqlite3.connect(path, factory=SqliteConnection)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        for script in sorted(MIGRATIONS.glob("*.sql"))[:version]:
            file.executescript(script.read_text(encoding="utf-8"))
        file.execute(f"PRAGMA user_version = {version}")
        yield file
        file.commit()
