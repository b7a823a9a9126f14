"""Reading connections to one file, each used by one thread at a time, beside its writer."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, TypeVar

from storage.errors import Unavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

_AT_ONCE = 3
_SETTINGS = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # a big log is read where the system caches it
)


class Readers:
    """A few connections that are opened when they are first needed. Get them with `opened`."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._idle: LifoQueue[sqlite3.Connection] = LifoQueue()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="reader")
        self._looks: list[tuple[Work, asyncio.Future[Any]]] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, patience: float) -> AsyncIterator[Readers]:
        """Readers of `path` that wait `patience` seconds for a lock; closed on leaving."""
        readers = cls(path, patience)
        try:
            yield readers
        finally:
            await asyncio.to_thread(readers._close)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns: it runs in a thread, in one transaction, so that all its queries
        see the same state of the file."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._work, work)

    def look(self, work: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """What `work` will have returned, at the same moment of the file as all else that is looked
        at in this turn of the event loop: they share one way to a thread and back."""
        loop = asyncio.get_running_loop()
        if not self._looks:
            loop.call_soon(self._look_at_all, loop)
        future: asyncio.Future[T] = loop.create_future()
        self._looks.append((work, future))
        return future

    def _look_at_all(self, loop: asyncio.AbstractEventLoop) -> None:
        looks, self._looks = self._looks, []
        all_of_them = partial(_results, [work for work, _ in looks])
        running = loop.run_in_executor(self._threads, self._work, all_of_them)
        running.add_done_callback(partial(_give, [future for _, future in looks]))

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            return work(connection)
        finally:
            connection.rollback()
            self._idle.put(connection)

    def _connection(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            connection = sqlite3.connect(
                self._path, self._patience, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            for setting in _SETTINGS:
                connection.execute(setting)
            return connection

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()


def _results(works: Sequence[Work], connection: sqlite3.Connection) -> list[Any]:
    return [work(connection) for work in works]


def _give(futures: Sequence[asyncio.Future[Any]], done: asyncio.Future[list[Any]]) -> None:
    """Give each its result, or all of them what went wrong."""
    error = done.exception()
    if isinstance(error, sqlite3.Error):
        error = Unavailable(f"the database cannot be read: {error}")
    results = [None for _ in futures] if error else done.result()
    for future, result in zip(futures, results, strict=True):
        if future.cancelled():
            continue
        if error:
            future.set_exception(error)
        else:
            future.set_result(result)
