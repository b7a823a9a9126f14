"""One SQLite file: opened, brought up to date, one writer, readers that never block it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import stamina

from storage.db import transactions
from storage.db.errors import Unavailable
from storage.db.inline_connection import InlineConnections
from storage.db.migration import migrate
from storage.db.reader_pool import ReaderPool

_PATIENCE = 5.0  # seconds to wait for another process that writes
_CHUNK = 64  # rows that a cursor fetches at once
_CHECKPOINT = 100  # times that something is put, of ten pages or so: SQLite's own is 1000 pages
_WRITING = 2  # threads: one that writes, and one that waits for the disk
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITER = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"

T = TypeVar("T")
Row = sqlite3.Row
Values = Sequence[Any] | Mapping[str, Any]


def to_micros(time: datetime) -> int:
    """Microseconds since 1970 of an aware time, exact."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """The UTC time that `to_micros` wrote."""
    return _EPOCH + timedelta(microseconds=micros)


class Database:
    """A file with one writing connection and readers. Get one with `open`."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        writer: aiosqlite.Connection,
        reader: aiosqlite.Connection,
        reader_pool: ReaderPool,
        inline: InlineConnections,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._wal = f"{path}-wal"
        self._connection = connection  # the one that `writer` has as well
        self._writer = writer
        self._reader = reader
        self._reader_pool = reader_pool
        self._inline = inline
        self._threads = threads
        self._lock = asyncio.Lock()
        self._syncing = self._puts = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path, *, patience: float = _PATIENCE) -> AsyncIterator[Database]:
        """Open `path`, creating it and bringing its tables up to date. Raises StorageError.

        `patience` is how many seconds a transaction waits for another process that writes.
        """
        connection = await asyncio.to_thread(_connect, path, patience)
        async with aiosqlite.Connection(lambda: connection, _CHUNK) as writer:
            await asyncio.to_thread(_prepare, connection, path, patience)
            with ThreadPoolExecutor(_WRITING, thread_name_prefix="writer") as threads:
                async with _reader(path) as reader, ReaderPool.open(path, patience) as reader_pool:
                    with closing(InlineConnections(path)) as inline:
                        yield cls(path, connection, writer, reader, reader_pool, inline, threads)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[aiosqlite.Connection]:
        """The writing connection inside BEGIN IMMEDIATE ... COMMIT, undone on any error.

        Raises Unavailable when SQLite cannot write.
        """
        async with self._lock:
            try:
                await self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                await self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                await self._undo()
                raise Unavailable(f"the database cannot be written: {error}") from error
            except BaseException:
                await self._undo()
                raise

    async def write(self, work: Callable[[sqlite3.Connection], T], *, lasting: bool = True) -> T:
        """What `work` returns, run in a thread in one transaction, undone on any error.

        Unless `lasting` it is there for everybody at once, and for good after the next `sync`:
        until then a power cut may undo it. Raises Unavailable.
        """
        call = partial(transactions.run_transaction, self._connection, work, lasting=lasting)
        async with self._lock:
            running = asyncio.get_running_loop().run_in_executor(self._threads, call)
            try:
                return await transactions.await_shielded(running)
            except sqlite3.Error as error:
                raise Unavailable(f"the database cannot be written: {error}") from error

    async def write_inline(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns: for a few rows that need not be `lasting`. It is to `write` what
        `read_inline` is to `read`. Raises Unavailable."""
        if self._syncing:  # the disk is busy with this file: it could hold up the event loop
            return await self.write(work, lasting=False)
        try:
            result = self._inline.write(work)
        except sqlite3.Error:
            return await self.write(work, lasting=False)
        self._puts += 1
        return result

    async def sync(self) -> None:
        """Wait until no power cut can undo what was written before. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        self._syncing += 1
        try:
            await loop.run_in_executor(self._threads, transactions.fsync_wal, self._wal)
        except OSError as error:
            raise Unavailable(f"the database cannot be brought to the disk: {error}") from error
        finally:
            self._syncing -= 1
        if self._puts > _CHECKPOINT:
            self._puts = 0
            await self.execute_outside_transaction("PRAGMA wal_checkpoint(PASSIVE)")

    async def execute_outside_transaction(self, statement: str) -> None:
        """Run what cannot be in a transaction, as PRAGMA and VACUUM. Raises Unavailable."""
        async with self._lock:
            try:
                await self._writer.execute_fetchall(statement)
            except sqlite3.Error as error:
                raise Unavailable(f"the database cannot be written: {error}") from error

    async def _undo(self) -> None:
        """End what transaction there may be: a cancelled BEGIN has begun one all the same."""
        with contextlib.suppress(sqlite3.Error):
            await asyncio.shield(self._writer.rollback())

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Every row of a query, read beside the writer. Raises Unavailable."""
        try:
            return await read_all(self._reader, sql, values)
        except sqlite3.Error as error:
            raise Unavailable(f"the database cannot be read: {error}") from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, run in a thread with a reading connection: for what takes several
        queries or long, as nobody else waits for it. Raises Unavailable."""
        try:
            return await self._reader_pool.run(work)
        except sqlite3.Error as error:
            raise Unavailable(f"the database cannot be read: {error}") from error

    async def read_inline(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns: for a few rows, which take less than the way to a thread and back.
        When that fails, or turns out to be more, it is done again as `read` does. Raises
        Unavailable."""
        try:
            return self._inline.read(work)
        except sqlite3.Error:
            return await self.read(work)

    async def version(self) -> int:
        """A number that changes when anybody has written to the file: cheap to poll."""
        row = await self.fetch_one("PRAGMA data_version")
        return int(row[0]) if row else 0

    async def fetch_one(self, sql: str, values: Values = ()) -> Row | None:
        """The first row of a query, or None."""
        rows = await self.fetch_all(sql, values)
        return rows[0] if rows else None


async def read_all(reader: aiosqlite.Connection, sql: str, values: Values) -> list[Row]:
    """Every row of a query on a bare reading connection."""
    rows: Iterable[Row] = await reader.execute_fetchall(sql, values)
    return list(rows)


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    """A connection that any thread may use, one after the other."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return sqlite3.connect(path, patience, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"{path}: cannot be opened: {error}") from error


def _prepare(connection: sqlite3.Connection, path: Path, patience: float) -> None:
    try:
        # Where two begin a new file at once, SQLite refuses one of them without waiting.
        for attempt in stamina.retry_context(
            on=_is_busy, attempts=None, timeout=patience, wait_initial=0.01, wait_jitter=0.05
        ):
            with attempt:
                connection.executescript(_WRITER)
        migrate(connection, path)
    except sqlite3.Error as error:
        raise Unavailable(f"{path}: cannot be used as a database: {error}") from error


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


@asynccontextmanager
async def _reader(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path, isolation_level=None, timeout=_PATIENCE) as reader:
        reader.row_factory = sqlite3.Row
        await reader.execute("PRAGMA query_only = ON")
        yield reader
