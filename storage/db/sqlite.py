"""The SQLite backend: connections, transactions and durability."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, TypeVar

import aiosqlite
import stamina

from storage.connection import AsyncConnection, Connection, Dialect, Row, Values
from storage.db.errors import Rejected, Unavailable
from storage.db.integrity import reading_address, require_sound, unusable
from storage.db.migration import migrate, require_newest
from storage.db.private_files import make_file, make_folder, tighten
from terrarium.cancellation import await_shielded

_LOCK_TIMEOUT = 5.0  # seconds to wait for another process that writes
_ROWS_PER_FETCH = 64  # rows that a cursor fetches at once
_MAX_INLINE_WRITES = 100  # inline writes, of about ten pages each; SQLite's own limit is 1000 pages
_WRITER_THREADS = 2  # threads: one that writes, and one that waits for the disk
_WRITER_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
_POLL_INTERVAL = 0.2  # seconds between two checks whether the file has changed
_READER_THREADS = 3  # threads, each with a connection that is opened on first use
_INLINE_LIMIT = 0.004
"""Seconds that inline work may take: enough to read the lines of a prompt, too short to stall the
event loop noticeably."""
_CLOCK_STEPS = 1_000  # instructions of SQLite's virtual machine between two checks of the clock
_READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # 16 GiB: read from the system's page cache without copying
)
_INLINE_WRITER_PRAGMAS = (
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 0",  # a checkpoint waits for the disk
    "PRAGMA foreign_keys = ON",
)

T = TypeVar("T")


class SqliteConnection(sqlite3.Connection):
    """A connection of the standard library with the methods of `Connection`."""

    dialect = Dialect.SQLITE

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Insert rows with one prepared statement."""
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self.executemany(f"INSERT INTO {into} VALUES ({places})", rows)


class AsyncSqliteConnection(aiosqlite.Connection):
    """A connection for the event loop that knows its dialect."""

    dialect = Dialect.SQLITE


class SqliteBackend:
    """An SQLite file in WAL mode. Use `open` to get one.

    A process has up to seven connections to a file, all opened here:

    - Two write. The main one serves `transaction` and `write`, one caller at a time under a lock.
      The inline one serves `write(inline=True)` in the event loop's own thread, and falls back to
      the main one when the file is busy. SQLite allows one writer at a time, in any process; the
      others wait, up to `patience` seconds, the inline one not at all.
    - Five read, concurrently with any writer, each on its own snapshot: one for `fetch_all` and
      `fetch_one`, up to three in the threads of `read`, one for `read(inline=True)`. They are set
      to `query_only`.

    A commit goes to the write-ahead log, where every reader sees it and where it survives a crash
    of this process. It is durable, that is, safe from a power cut, once the log has been fsynced:

    - `transaction` and `write` return after their fsync;
    - `write(durable=False)`, inline or not, returns before it. The next `sync`, or the next
      durable commit of the main connection, makes it durable with all commits before it.
    """

    def __init__(
        self,
        path: Path,
        writer: AsyncSqliteConnection,
        connection: SqliteConnection,
        reader: aiosqlite.Connection,
        reader_pool: _ReaderPool,
        inline: _InlineConnections,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._path = path
        self._writer = writer
        self._connection = connection  # the one that `writer` wraps
        self._reader = reader
        self._reader_pool = reader_pool
        self._inline = inline
        self._threads = threads
        self._lock = asyncio.Lock()
        self._syncs = 0  # fsyncs in progress
        self._has_lost_writes = False  # an fsync of the log has failed since it was last emptied
        self._inline_writes = 0  # since the last checkpoint

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, patience: float, checked: bool = False, read_only: bool = False
    ) -> AsyncIterator[SqliteBackend]:
        """Open `path`, creating it and migrating its tables. Raises StorageError.

        `patience` is how many seconds a transaction waits for another process that writes.
        `checked` refuses a damaged file; long-lived processes open their own file with it.
        `read_only` writes nothing and migrates nothing, for read-only media.
        """
        if checked:
            await asyncio.to_thread(require_sound, path)
        target = await asyncio.to_thread(reading_address, path) if read_only else path
        connection = await asyncio.to_thread(_connect, target, patience)
        writer = AsyncSqliteConnection(lambda: connection, _ROWS_PER_FETCH)
        async with writer:
            if read_only:
                await asyncio.to_thread(require_newest, connection, path)
            else:
                await asyncio.to_thread(_prepare, connection, path, patience)
            with ThreadPoolExecutor(_WRITER_THREADS, thread_name_prefix="writer") as threads:
                async with (
                    _reader(target) as reader,
                    _ReaderPool.open(target, patience) as reader_pool,
                ):
                    with closing(_InlineConnections(target)) as inline:
                        yield cls(path, writer, connection, reader, reader_pool, inline, threads)

    def __repr__(self) -> str:
        return f"<SqliteBackend {self._path}>"

    @asynccontextmanager
    async def transaction(self, *, exclusive: bool = True) -> AsyncIterator[AsyncConnection]:
        """Yield the main writing connection in BEGIN IMMEDIATE ... COMMIT, durable once committed.

        Any exception rolls it back. SQLite has one writer, so every transaction is exclusive.
        Raises Unavailable.
        """
        async with self._lock:
            try:
                # IMMEDIATE takes the write lock now: a deferred transaction that reads first fails
                # at its first write, without waiting, once another process has written meanwhile.
                await self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                await self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                await self._roll_back()
                raise self._unwritable(error) from error
            except BaseException:
                await self._roll_back()
                raise

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Run `work` in one transaction and return its result; any exception rolls it back.

        `work` runs in a thread, or with `inline` in the caller's, which is faster for a few rows.
        Inline work must not be `durable`, because the event loop would wait for the disk; it is run
        again in a thread when it takes too long or the file is busy. Raises Unavailable.
        """
        if inline:
            if durable:
                raise ValueError("an inline write cannot be durable")
            # While an fsync of this file runs, a write to it could block the event loop.
            if not self._syncs:
                # Busy, too slow or failed: it was rolled back, so it is run again below.
                with contextlib.suppress(sqlite3.Error):
                    result = self._inline.write(work)
                    self._inline_writes += 1
                    return result
        call = partial(_run_transaction, self._connection, work, durable=durable)
        # The lock also keeps the threads of `_writer` and `_threads` off the same connection.
        async with self._lock:
            running = asyncio.get_running_loop().run_in_executor(self._threads, call)
            try:
                # A thread cannot be cancelled: the lock is held until it is done with it.
                return await await_shielded(running)
            except sqlite3.Error as error:
                raise self._unwritable(error) from error

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Run `work` on one snapshot of the file and return its result.

        `work` runs in a thread with its own connection, so it may take long; with `inline` it runs
        in the caller's thread, which is faster for a few rows, and is run again in a thread when it
        fails or takes too long. Raises Unavailable.
        """
        if inline:
            with contextlib.suppress(sqlite3.Error):
                return self._inline.read(work)
        try:
            return await self._reader_pool.run(work)
        except sqlite3.Error as error:
            raise _unreadable(error) from error

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query. Raises Unavailable."""
        try:
            return list(await self._reader.execute_fetchall(sql, values))
        except sqlite3.Error as error:
            raise _unreadable(error) from error

    async def sync(self) -> None:
        """Make all commits so far durable. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        self._syncs += 1
        try:
            if self._has_lost_writes:
                await self._rewrite_wal()
                self._has_lost_writes = False
            await loop.run_in_executor(self._threads, _fsync_wal, f"{self._path}-wal")
        except OSError as error:
            self._has_lost_writes = True
            raise Unavailable(f"the database cannot be brought to the disk: {error}") from error
        finally:
            self._syncs -= 1
        # The inline connection never checkpoints, so the log would grow without limit. A PASSIVE
        # checkpoint waits for neither readers nor writers.
        if self._inline_writes > _MAX_INLINE_WRITES:
            self._inline_writes = 0
            await self.execute_outside_transaction("PRAGMA wal_checkpoint(PASSIVE)")

    async def _rewrite_wal(self) -> None:
        """Write all that is in the write-ahead log into the file, and empty the log.

        After an fsync has failed, Linux counts its pages as clean although they may never have
        reached the disk, so that the next fsync succeeds and proves nothing. Nor would new frames
        help in the same log: after a power cut SQLite reads it only up to the first frame with a
        wrong checksum. The checkpoint copies the pages into the file from the page cache, where
        ext4 and XFS keep them, and fsyncs it. Raises Unavailable, also while a reader still needs
        the log.
        """
        rows = await self.execute_outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")
        if rows and rows[0][0]:
            raise Unavailable("the database cannot be brought to the disk: it is being read")

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that is not allowed inside a transaction, such as VACUUM or some PRAGMAs,
        on the main writing connection; return its rows. Raises Unavailable."""
        async with self._lock:
            try:
                return list(await self._writer.execute_fetchall(statement))
            except sqlite3.Error as error:
                raise self._unwritable(error) from error

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield at once, and then whenever any process has written to the file, for ever."""
        seen = None
        while True:
            # `data_version` changes with the commits of all connections but the one that asks for
            # it, and this one never writes (https://www.sqlite.org/pragma.html#pragma_data_version).
            rows = await self.fetch_all("PRAGMA data_version")
            if rows[0][0] != seen:
                seen = rows[0][0]
                yield
            await asyncio.sleep(_POLL_INTERVAL)

    def _unwritable(self, error: sqlite3.Error) -> Unavailable:
        # The failed fsync was also for earlier commits that were not durable yet.
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_FSYNC:
            self._has_lost_writes = True
        # sqlite3.ProgrammingError and the like are not about values: other writes fail too.
        is_rejected = isinstance(error, sqlite3.IntegrityError | sqlite3.DataError)
        kind = Rejected if is_rejected else Unavailable
        return kind(f"the database cannot be written: {error}")

    async def _roll_back(self) -> None:
        # Also after a cancelled BEGIN: aiosqlite's thread executes it all the same, and then this.
        # To its end, as the lock that the caller holds keeps other threads off the connection.
        with contextlib.suppress(sqlite3.Error):
            await await_shielded(asyncio.ensure_future(self._writer.rollback()))


class _ReaderPool:
    """A pool of threads that read, with connections that are opened on first use.

    There are never more connections than threads, as each thread puts its connection back.
    """

    def __init__(self, path: Path | str, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._idle: LifoQueue[SqliteConnection] = LifoQueue()
        self._threads = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="reader")

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path | str, patience: float) -> AsyncIterator[_ReaderPool]:
        """Open a pool of readers that wait up to `patience` seconds for a lock; leaving closes it
        once the reads in progress have ended."""
        reader_pool = cls(path, patience)
        try:
            yield reader_pool
        finally:
            await asyncio.to_thread(reader_pool._close)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a thread on one snapshot of the file and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._run, work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = _open_connection(self._path, self._patience, _READER_PRAGMAS)
        try:
            return _read_snapshot(connection, work)
        finally:
            self._idle.put(connection)

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()


class _InlineConnections:
    """A reading and a writing connection for work in the caller's thread, opened on first use.

    The methods raise sqlite3.Error, with nothing changed, when the work fails, takes longer than
    `_INLINE_LIMIT` or would have to wait for a lock.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._reader: SqliteConnection | None = None
        self._writer: SqliteConnection | None = None
        self._until = 0.0

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which reads a few rows, and return its result."""
        self._reader = self._reader or self._open(_READER_PRAGMAS)
        self._until = time.monotonic() + _INLINE_LIMIT
        return _read_snapshot(self._reader, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work`, which writes a few rows, and return its result; durable only after an
        fsync."""
        self._writer = self._writer or self._open(_INLINE_WRITER_PRAGMAS)
        self._until = time.monotonic() + _INLINE_LIMIT
        return _commit_transaction(self._writer, work)

    def close(self) -> None:
        """Close the connections that are open."""
        for connection in filter(None, (self._reader, self._writer)):
            connection.close()

    def _open(self, settings: Sequence[str]) -> SqliteConnection:
        # No busy timeout: while another connection writes, the work is handed to a thread instead.
        connection = _open_connection(self._path, 0, settings)
        # A handler that returns true interrupts the statement with SQLITE_INTERRUPT.
        connection.set_progress_handler(lambda: time.monotonic() > self._until, _CLOCK_STEPS)
        return connection


def _run_transaction(
    connection: SqliteConnection, work: Callable[[Connection], T], *, durable: bool
) -> T:
    """Run `work` in one transaction of the main writing connection and return its result.

    Unless `durable`, the commit does not fsync (`synchronous = NORMAL` in WAL mode): every reader
    sees it and it survives a crash of this process, but a power cut may undo it until `_fsync_wal`.
    """
    if durable:
        return _commit_transaction(connection, work)
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        return _commit_transaction(connection, work)
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def _commit_transaction(connection: SqliteConnection, work: Callable[[Connection], T]) -> T:
    """Run `work` in BEGIN IMMEDIATE ... COMMIT and return its result; any error rolls it back."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.rollback()
        raise
    return result


def _read_snapshot(connection: SqliteConnection, work: Callable[[Connection], T]) -> T:
    """Run `work` on one snapshot, which its first query takes, and return its result."""
    try:
        connection.execute("BEGIN")
        return work(connection)
    finally:
        connection.rollback()


def _fsync_wal(wal: str) -> None:
    """Flush a write-ahead log to the disk, as SQLite does after each commit with `synchronous =
    FULL` (https://www.sqlite.org/pragma.html#pragma_synchronous). Raises OSError.
    """
    # Without a log, commits went to the file itself and were fsynced there.
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(wal, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open_connection(
    path: Path | str, patience: float, settings: Sequence[str]
) -> SqliteConnection:
    """Open a connection that any thread may use, one at a time; `path` may also be a URI."""
    connection = sqlite3.connect(
        path,
        patience,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteConnection,
        uri=True,
    )
    connection.row_factory = sqlite3.Row
    for setting in settings:
        connection.execute(setting)
    return connection


def _unreadable(error: sqlite3.Error) -> Unavailable:
    return Unavailable(f"the database cannot be read: {error}")


def _connect(path: Path | str, patience: float) -> SqliteConnection:
    """Open the main writing connection, creating the file; any thread may use it, one at a time.

    Only the user may read the file; SQLite gives its -wal and -shm files the same mode.
    """
    try:
        if isinstance(path, Path):
            make_folder(path.parent)
            make_file(path)
            for beside in ("-wal", "-shm"):
                tighten(path.with_name(path.name + beside))
        return _open_connection(path, patience, ())
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"{path}: cannot be opened: {error}") from error


def _prepare(connection: SqliteConnection, path: Path, patience: float) -> None:
    try:
        # When two processes create a file at once, setting the journal mode fails for one of them
        # with SQLITE_BUSY at once, without the busy timeout.
        for attempt in stamina.retry_context(
            on=lambda error: getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY,
            attempts=None,
            timeout=patience,
            wait_initial=0.01,
            wait_jitter=0.05,
        ):
            with attempt:
                connection.executescript(_WRITER_PRAGMAS)
        migrate(connection, path)
    except sqlite3.Error as error:
        raise unusable(path, error) from error


@asynccontextmanager
async def _reader(path: Path | str) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(
        path, isolation_level=None, timeout=_LOCK_TIMEOUT, uri=True
    ) as reader:
        reader.row_factory = sqlite3.Row
        await reader.execute("PRAGMA query_only = ON")
        yield reader


_INTERRUPT_STEPS = 2_000  # instructions of SQLite's virtual machine between two calls of `is_late`


class Interrupted(Exception):
    """A query has run out of time."""


@contextmanager
def interruptible(connection: Connection, is_late: Callable[[], bool]) -> Iterator[None]:
    """Raise Interrupted from the queries inside the context once `is_late` returns True.

    It has no effect on PostgreSQL, where a cancelled query aborts its transaction: callers must
    also check the clock between queries.
    """
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    # A connection has one handler, so inline work, which is limited by its own, must not use this.
    try:
        connection.set_progress_handler(is_late, _INTERRUPT_STEPS)
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise Interrupted from error
    finally:
        connection.set_progress_handler(None, 0)
