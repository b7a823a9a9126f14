"""Online backup of an SQLite file, while other processes write to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.db.errors import Unavailable
from storage.db.integrity import reading_address


def back_up(source: Path, target: Path) -> None:
    """Copy the database `source` into the empty file `target`. Blocks.

    The copy is a snapshot of the moment at which it begins, so it has all writes acknowledged
    before. In WAL mode it does not hold up writers. Raises Unavailable.
    """
    if not source.exists():
        raise Unavailable(f"{source}: there is nothing to back up")
    try:
        with (
            closing(sqlite3.connect(reading_address(source), uri=True)) as reader,
            closing(sqlite3.connect(target)) as copy,
        ):
            # All pages in one step: between steps, a write by another process restarts the backup
            # (https://www.sqlite.org/backup.html).
            reader.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without -wal and -shm
    except sqlite3.Error as error:
        raise Unavailable(f"{source}: cannot be backed up: {error}") from error
