"""The connections behind a `Database`, and the transactions that run on them.

Each function here works on a bare `sqlite3.Connection` and blocks. `Database` decides in which
thread it runs and who waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, LifoQueue
from typing import TypeVar

T = TypeVar("T")

_READERS = 3  # threads, each with a connection once it has been needed
_INLINE_LIMIT = 0.004
"""Seconds that inline work may take: more than reading the lines of a prompt needs, and less than
the event loop would miss."""
_CLOCK_STEPS = 1_000  # instructions of SQLite's virtual machine between two looks at the clock
_READING = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # a big log is read from where the system caches it
)
_INLINE_WRITING = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 0",  # a checkpoint waits for the disk
    "PRAGMA foreign_keys = ON",
)


class ReaderPool:
    """Reading connections in threads of their own, opened when they are first needed."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, patience: float) -> AsyncIterator[ReaderPool]:
        """Open a pool of readers that wait `patience` seconds for a lock; closed on leaving."""
        reader_pool = cls(path, patience)
        try:
            yield reader_pool
        finally:
            await asyncio.to_thread(reader_pool._close)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, run in a thread on one snapshot of the file."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = _connect(self._path, self._patience, _READING)
        try:
            return read_snapshot(connection, work)
        finally:
            self._idle.put(connection)

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()


class InlineConnections:
    """One reading and one writing connection for work that is done in the caller's thread.

    Each is opened when it is first needed. The methods raise sqlite3.Error, with nothing done,
    when the work fails, takes longer than `_INLINE_LIMIT` or would have to wait for a lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._until = 0.0

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, which reads a few rows."""
        self._reader = self._reader or self._open(_READING)
        self._until = time.monotonic() + _INLINE_LIMIT
        return read_snapshot(self._reader, work)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, which writes a few rows; not durable before an fsync."""
        self._writer = self._writer or self._open(_INLINE_WRITING)
        self._until = time.monotonic() + _INLINE_LIMIT
        return commit_transaction(self._writer, work)

    def close(self) -> None:
        """Close the connections that are open."""
        for connection in filter(None, (self._reader, self._writer)):
            connection.close()

    def _open(self, settings: Sequence[str]) -> sqlite3.Connection:
        # No busy timeout: where another connection writes, the work is handed to a thread instead.
        connection = _connect(self._path, 0, settings)
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _CLOCK_STEPS)
        return connection


def run_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], *, durable: bool
) -> T:
    """Return the result of `work`, run in one transaction of the main writing connection.

    Unless `durable`, the commit does not fsync: every reader sees it and it survives the end of
    this process, but a power cut may undo it until `fsync_wal`.
    """
    if durable:
        return commit_transaction(connection, work)
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        return commit_transaction(connection, work)
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def commit_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
) -> T:
    """Return the result of `work`, run in BEGIN IMMEDIATE ... COMMIT; rolled back on any error."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.rollback()
        raise
    return result


def read_snapshot(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Return the result of `work`; all its queries see the same state of the file."""
    try:
        connection.execute("BEGIN")
        return work(connection)
    finally:
        connection.rollback()


def fsync_wal(wal: str) -> None:
    """Flush a write-ahead log to the disk. Raises OSError.

    It is what SQLite itself does at the end of a commit with `synchronous = FULL`
    (https://www.sqlite.org/pragma.html#pragma_synchronous).
    """
    # Without a log, commits have gone to the file itself, and have waited for the disk.
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(wal, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _connect(path: Path, patience: float, settings: Sequence[str]) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time."""
    connection = sqlite3.connect(path, patience, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    for setting in settings:
        connection.execute(setting)
    return connection
