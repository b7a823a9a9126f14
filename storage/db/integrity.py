"""SQLite files as a whole: integrity checks, reading without changes, online backups."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from storage.db.errors import DamagedFile, Unavailable

MAX_WHOLE_CHECK_SIZE = 256 << 20
"""Size of the largest file, in bytes, that is checked whole at a start, in a second or two. Of a
larger one only the schema and the newest rows are read, where a torn write would be."""

_ROWS = 1_000
_NEWEST = (
    f"SELECT * FROM (SELECT * FROM events ORDER BY id DESC LIMIT {_ROWS})",
    f"SELECT * FROM (SELECT * FROM turns ORDER BY id DESC LIMIT {_ROWS})",
)
# Instructions of SQLite's virtual machine between two checks of the clock.
_STEPS_PER_CHECK = 100_000
_CANNOT_WRITE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def require_sound(path: Path) -> None:
    """Check a file, if it is there, before its use; up to `MAX_WHOLE_CHECK_SIZE` all of it. Blocks.
    Raises DamagedFile, Unavailable."""
    if not path.exists():
        return
    try:
        with closing(_open(path)) as connection:
            if path.stat().st_size <= MAX_WHOLE_CHECK_SIZE:
                finding = _quick_check(connection)
            else:
                finding = None
                known = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
                # Reading is the check: SQLite raises SQLITE_CORRUPT when it meets a malformed page.
                for sql in _NEWEST if {"events", "turns"} <= known else ():
                    for _ in connection.execute(sql):
                        pass
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    if finding:
        raise DamagedFile(path, finding)


def describe_damage(path: Path, seconds: float) -> str | None:
    """Return the first defect found in a file within so many `seconds`, if any. Blocks. Raises
    Unavailable."""
    try:
        with closing(_open(path)) as connection:
            until = time.monotonic() + seconds
            connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS_PER_CHECK)
            return _quick_check(connection)
    except DamagedFile as error:
        return error.finding
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        failure = unusable(path, error)
        if isinstance(failure, DamagedFile):
            return failure.finding
        raise failure from error


def reading_address(path: Path) -> str:
    """Return a URI by which SQLite opens a file without changing it. Raises Unavailable.

    To read a file in WAL mode SQLite needs a -wal and a -shm file in the same folder. Where it
    cannot create them, as on read-only media, the file is opened as immutable, that is, without
    locks: nobody else can write to it there either.
    """
    address = path.absolute().as_uri()
    try:
        with closing(sqlite3.connect(f"{address}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        if (error.sqlite_errorcode & 0xFF) not in _CANNOT_WRITE:
            raise unusable(path, error) from error
        return f"{address}?immutable=1"
    return f"{address}?mode=ro"


def back_up(source: Path, target: Path) -> None:
    """Copy the database `source` into the empty file `target`. Blocks. The copy is a snapshot of
    its beginning, and in WAL mode does not hold up writers. Raises Unavailable."""
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


def unusable(path: Path, error: sqlite3.Error) -> DamagedFile | Unavailable:
    """Return the error to raise for a file that SQLite cannot use."""
    # The low byte of an extended result code is the primary code
    # (https://www.sqlite.org/rescode.html#extrc).
    if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGE:
        return DamagedFile(path, str(error))
    return Unavailable(f"{path}: cannot be used as a database: {error}")


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(reading_address(path), uri=True)


def _quick_check(connection: sqlite3.Connection) -> str | None:
    finding = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return None if finding == "ok" else " ".join(finding.split())
