"""Reading connections to one file, each used by one thread at a time, beside its writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, LifoQueue
from typing import TypeVar

T = TypeVar("T")

_AT_ONCE = 3
READING = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # a big log is read where the system caches it
)


class ReaderPool:
    """A few connections that are opened when they are first needed. Get them with `open`."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reader")

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, patience: float) -> AsyncIterator[ReaderPool]:
        """Readers of `path` that wait `patience` seconds for a lock; closed on leaving."""
        reader_pool = cls(path, patience)
        try:
            yield reader_pool
        finally:
            await asyncio.to_thread(reader_pool._close)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns: it runs in a thread, in one transaction, so that all its queries
        see the same state of the file."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._work, work)

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = connect(self._path, self._patience, READING)
        try:
            return read_snapshot(connection, work)
        finally:
            self._idle.put(connection)

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()


def connect(path: Path, patience: float, settings: Sequence[str]) -> sqlite3.Connection:
    """A connection that any thread may use, one after the other."""
    connection = sqlite3.connect(path, patience, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    for setting in settings:
        connection.execute(setting)
    return connection


def read_snapshot(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """What `work` returns; all its queries see the same state of the file."""
    try:
        connection.execute("BEGIN")
        return work(connection)
    finally:
        connection.rollback()
