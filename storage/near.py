"""Connections for what takes less than the way to a thread and back, used where they are called."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LONGEST = 0.004
"""Seconds: more than the lines of a prompt take, and less than the event loop would miss."""
_STEPS = 1_000  # instructions of SQLite's machine between two looks at the clock
_READER = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # a big log is read where the system caches it
)
_WRITER = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 0",  # that waits for the disk
    "PRAGMA foreign_keys = ON",
)


class Near:
    """Two connections to the file `path`, each opened when it is first needed.

    Its methods return what `work` returns, which runs at once in one transaction. They raise
    sqlite3.Error, with nothing done, when that fails, takes too long or would have to wait.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._until = 0.0

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows."""
        if self._reader is None:
            self._reader = self._opened(_READER)
        self._until = time.monotonic() + _LONGEST
        self._reader.execute("BEGIN")
        try:
            return work(self._reader)
        finally:
            self._reader.rollback()

    def put(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write a few rows: there for everybody, and for good after the next sync."""
        if self._writer is None:
            self._writer = self._opened(_WRITER)
        self._until = time.monotonic() + _LONGEST
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._writer)
            self._writer.execute("COMMIT")
        except BaseException:
            self._writer.rollback()
            raise
        return result

    def close(self) -> None:
        """Close what is open."""
        for connection in (self._reader, self._writer):
            if connection:
                connection.close()

    def _opened(self, settings: Sequence[str]) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, 0, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        for setting in settings:
            connection.execute(setting)
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _STEPS)
        return connection
