"""Connections for what takes less than the way to a thread and back, used where they are called."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from storage.db.reader_pool import READING, connect, read_snapshot
from storage.db.transactions import commit_transaction

T = TypeVar("T")

_LONGEST = 0.004
"""Seconds: more than the lines of a prompt take, and less than the event loop would miss."""
_STEPS = 1_000  # instructions of SQLite's machine between two looks at the clock
_WRITING = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 0",  # that waits for the disk
    "PRAGMA foreign_keys = ON",
)


class InlineConnections:
    """Two connections to the file `path`, each opened when it is first needed.

    Its methods return what `work` returns, which runs at once in one transaction. They raise
    sqlite3.Error, with nothing done, when that fails, takes too long or would have to wait.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._until = 0.0

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read a few rows."""
        self._reader = self._reader or self._open(READING)
        self._until = time.monotonic() + _LONGEST
        return read_snapshot(self._reader, work)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write a few rows: there for everybody, and for good after the next sync."""
        self._writer = self._writer or self._open(_WRITING)
        self._until = time.monotonic() + _LONGEST
        return commit_transaction(self._writer, work)

    def close(self) -> None:
        """Close what is open."""
        for connection in filter(None, (self._reader, self._writer)):
            connection.close()

    def _open(self, settings: Sequence[str]) -> sqlite3.Connection:
        connection = connect(self._path, 0, settings)
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _STEPS)
        return connection
