"""A copy of a whole database file while others write it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.db.errors import Unavailable
from storage.db.integrity import reading_address


def back_up(source: Path, target: Path) -> None:
    """Copy the database `source` into the empty file `target`; blocks until that is done.

    The copy is of the moment at which it begins: it has all that was acknowledged before. In WAL
    mode it reads a snapshot, so nobody who writes has to wait for it. Raises Unavailable.
    """
    if not source.exists():
        raise Unavailable(f"{source}: there is nothing to back up")
    try:
        with (
            closing(sqlite3.connect(reading_address(source), uri=True)) as reader,
            closing(sqlite3.connect(target)) as copy,
        ):
            reader.backup(copy, pages=-1)  # in steps it would begin anew after each write
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, no -wal beside it
    except sqlite3.Error as error:
        raise Unavailable(f"{source}: cannot be backed up: {error}") from error
