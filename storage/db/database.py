"""The database of a tendril, independent of its backend, and the one for SQLite files."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
import traceback
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import aiosqlite
import stamina

from storage.connection import Connection as Connection
from storage.connection import Dialect, Values
from storage.connection import Row as Row
from storage.db.address import PREFIX, SCHEMAS_WITH, PostgresSchema
from storage.db.address import Address as Address
from storage.db.errors import Rejected, Unavailable
from storage.db.integrity import reading_address, require_sound, unusable
from storage.db.migration import migrate, require_newest
from storage.db.private_files import make_file, make_folder, tighten
from terrarium.cancellation import await_shielded
from terrarium.file_watcher import file_stamp

NEEDS_EXTRA = "storage on PostgreSQL needs the extra: pip install 'terrarium-irc[postgres]'"
_LOCK_TIMEOUT = 5.0  # seconds to wait for another process that writes
_WRITER_PRAGMAS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
_READERS = 3  # connections, each opened on first use
_ROWS_PER_FETCH = 64  # of a cursor of aiosqlite, which nothing here uses
_READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA mmap_size = 17179869184",  # 16 GiB: read from the system's page cache without copying
)
_POLL_INTERVAL = 0.2  # seconds between two checks whether the file has changed
# Seconds after which the file counts as changed in any case: not every file system has exact times.
_WAKE_INTERVAL = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")
P = ParamSpec("P")


def to_micros(time: datetime) -> int:
    """Return the microseconds from the Unix epoch to an aware time, without rounding."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number of microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=micros)


class Backend(Protocol):
    """The verbs of an open database; work runs in a thread. All methods raise Unavailable when it
    cannot be reached, read or written. `is_away` is True while its server cannot be reached."""

    is_away: bool

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, exclusive: bool = True
    ) -> T:
        """Run `work` in one transaction and return its result; any exception rolls it back.

        A commit that is not durable becomes so at the next `sync`. With `exclusive=False` the
        transaction may run concurrently with others, where the database supports that, and must
        itself lock the rows that it changes; if PostgreSQL goes away during its COMMIT, it may then
        have taken effect although Unavailable is raised. Once begun, it is not cancelled. Raises
        Rejected for values that the database refuses; on PostgreSQL also Conflict, when a unique
        constraint is violated.
        """

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` on one snapshot, with these arguments after the connection, and return its
        result. It may take long."""

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Keep everybody from writing inside the context, this process included."""

    async def sync(self) -> None:
        """Make all commits so far durable."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that no transaction allows, such as VACUUM, and return its rows."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield at once, whenever any process may have written, except with `exclusive=False`, and
        now and then without a change, for ever. Quick changes may be merged into one."""


class SqliteConnection(sqlite3.Connection):
    """A connection of the standard library with the methods of `Connection`."""

    dialect = Dialect.SQLITE

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self.executemany(f"INSERT INTO {into} VALUES ({places})", rows)


class AsyncConnection(aiosqlite.Connection):
    """A connection with a thread of its own, in which whole functions run."""

    @classmethod
    async def open(cls, connect: Callable[[], SqliteConnection]) -> Self:
        """Return the connection that `connect` makes, with a running thread."""
        # Made before: aiosqlite leaves a thread behind whose connector fails.
        made = await asyncio.to_thread(connect)
        connection = cls(lambda: made, _ROWS_PER_FETCH)
        await connection
        return connection

    async def run(
        self, work: Callable[Concatenate[SqliteConnection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` with the connection and return its result. A cancellation does not end it."""
        result: T = await self._execute(work, self._conn, *args, **kwargs)  # type: ignore[no-untyped-call]
        return result


class SqliteBackend:
    """An SQLite file in WAL mode.

    A process has one connection that writes, for one caller at a time under a lock, and up to three
    that read, each in its own thread and on its own snapshot, concurrently with any writer. SQLite
    allows one writer at a time, in any process; the others wait, up to `patience` seconds.

    A commit goes to the write-ahead log, where every reader sees it and where it survives a crash
    of this process. It is durable, that is, safe from a power cut, once the log has been fsynced:
    `write` returns after its fsync, `write(durable=False)` before it. The next `sync`, or the next
    durable commit, makes that durable with all commits before it.
    """

    def __init__(
        self, path: Path, target: Path | str, writer: AsyncConnection, patience: float
    ) -> None:
        self.is_away = False
        self._path, self._wal = path, path.with_name(f"{path.name}-wal")
        self._connect_reader = partial(_open_connection, target, patience, _READER_PRAGMAS)
        self._writer = writer
        self._lock = asyncio.Lock()
        self._reading = asyncio.Semaphore(_READERS)
        self._idle: list[AsyncConnection] = []  # readers without work
        self._has_lost_writes = False  # an fsync of the log has failed since it was last emptied

    async def close(self) -> None:
        """Close all connections once the work in progress has ended."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._writer.close)
            for _ in range(_READERS):
                await self._reading.acquire()
            for reader in self._idle:
                closing.push_async_callback(reader.close)

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, exclusive: bool = True
    ) -> T:
        """Run `work` in one transaction; with SQLite every one is exclusive."""

        def run(connection: SqliteConnection) -> T:
            if not durable:  # in WAL mode the commit then does not fsync
                connection.execute("PRAGMA synchronous = NORMAL")
            try:
                # IMMEDIATE takes the write lock now: a deferred transaction that reads first fails
                # at its first write, without waiting, once another process has written meanwhile.
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.rollback()
                raise
            finally:
                if not durable:
                    connection.execute("PRAGMA synchronous = FULL")
            return result

        async with self._lock:
            return await self._write(run)

    async def _write(self, work: Callable[[SqliteConnection], T]) -> T:
        """Run `work` in a thread with the writing connection, under the lock."""
        try:
            # A thread cannot be cancelled: the lock is held until it is done with the connection.
            return await await_shielded(asyncio.ensure_future(self._writer.run(work)))
        except sqlite3.Error as error:
            # The failed fsync was also for earlier commits that were not durable yet.
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_FSYNC:
                self._has_lost_writes = True
            # A cursor in a frame of the error would keep the file open as long as that lives.
            traceback.clear_frames(error.__traceback__)
            # sqlite3.ProgrammingError and the like are not about values: other writes fail too.
            is_rejected = isinstance(error, sqlite3.IntegrityError | sqlite3.DataError)
            kind = Rejected if is_rejected else Unavailable
            raise kind(f"the database cannot be written: {error}") from error

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run(connection: SqliteConnection) -> T:
            try:
                connection.execute("BEGIN")  # the first query takes the snapshot
                return work(connection, *args, **kwargs)
            finally:
                connection.rollback()

        async def run_in_reader() -> T:
            async with self._reading:
                connect = self._connect_reader
                reader = self._idle.pop() if self._idle else await AsyncConnection.open(connect)
                try:
                    return await reader.run(run)
                finally:
                    self._idle.append(reader)

        try:
            # Who is cancelled does not wait for the thread, but its connection does.
            return await asyncio.shield(asyncio.ensure_future(run_in_reader()))
        except sqlite3.Error as error:
            raise Unavailable(f"the database cannot be read: {error}") from error

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._lock:
            await self._write(lambda connection: connection.execute("BEGIN IMMEDIATE"))
            try:
                yield
            finally:
                await self._write(lambda connection: connection.rollback())

    async def sync(self) -> None:
        def flush() -> None:
            # Without a log, commits went to the file itself and were fsynced there.
            with suppress(FileNotFoundError), self._wal.open("rb") as wal:
                os.fsync(wal.fileno())

        try:
            if self._has_lost_writes:
                # After an fsync has failed, Linux counts its pages as clean although they may never
                # have reached the disk, so that the next fsync succeeds and proves nothing. Nor
                # would new frames help in the same log: after a power cut SQLite reads it only up
                # to the first frame with a wrong checksum. The checkpoint copies the pages into the
                # file from the page cache, where ext4 and XFS keep them, and fsyncs it.
                checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)"
                rows = await self.execute_outside_transaction(checkpoint)
                if rows and rows[0][0]:  # a reader still needs the log
                    raise Unavailable(
                        "the database cannot be brought to the disk: it is being read"
                    )
                self._has_lost_writes = False
            await asyncio.to_thread(flush)
        except OSError as error:
            self._has_lost_writes = True
            raise Unavailable(f"the database cannot be brought to the disk: {error}") from error

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        async with self._lock:
            return await self._write(lambda connection: connection.execute(statement).fetchall())

    async def changes(self) -> AsyncGenerator[None, None]:
        # The times of the files tell in microseconds, a query takes a thread and a hundred times as
        # long. But those of two commits within one tick of the clock are equal: hence once more.
        seen, again, until = None, False, 0.0
        while True:
            stamp, now = (file_stamp(self._path), file_stamp(self._wal)), time.monotonic()
            if stamp != seen or again or now > until:
                again, seen, until = stamp != seen, stamp, now + _WAKE_INTERVAL
                yield
            await asyncio.sleep(_POLL_INTERVAL)


@asynccontextmanager
async def open_sqlite(
    path: Path, patience: float, *, checked: bool, read_only: bool
) -> AsyncIterator[SqliteBackend]:
    """Open `path` as `Database.open` says. Raises StorageError."""
    if checked:
        await asyncio.to_thread(require_sound, path)
    target = await asyncio.to_thread(reading_address, path) if read_only else path
    writer = await AsyncConnection.open(partial(_connect, target, patience))
    database = SqliteBackend(path, target, writer, patience)
    try:
        if read_only:
            await writer.run(require_newest, path)
        else:
            await writer.run(_prepare, path, patience)
        yield database
    finally:
        await database.close()


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


def _connect(path: Path | str, patience: float) -> SqliteConnection:
    """Open the writing connection; its file, and SQLite's beside it, are for the user only."""
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


_INTERRUPT_STEPS = 2_000  # instructions of SQLite's virtual machine between two calls of `is_late`


class Interrupted(Exception):
    """A query has run out of time."""


@contextmanager
def interruptible(connection: Connection, is_late: Callable[[], bool]) -> Iterator[None]:
    """Raise Interrupted from the queries inside the context once `is_late` returns True; not on
    PostgreSQL, where that would abort the transaction: callers also check the clock in between."""
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    try:
        connection.set_progress_handler(is_late, _INTERRUPT_STEPS)
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise Interrupted from error
    finally:
        connection.set_progress_handler(None, 0)


class Database:
    """An SQLite file in WAL mode, or a schema of PostgreSQL, with the verbs of `Backend` and
    shorthands for a single statement. Exclusive writes are serialised, across processes and
    machines."""

    def __init__(self, address: Address, backend: Backend) -> None:
        self.address, self._backend = address, backend
        self.read, self.write = backend.read, backend.write
        self.exclusive, self.sync, self.changes = backend.exclusive, backend.sync, backend.changes
        self.execute_outside_transaction = backend.execute_outside_transaction

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: Address,
        *,
        patience: float = _LOCK_TIMEOUT,
        checked: bool = False,
        read_only: bool = False,
    ) -> AsyncIterator[Database]:
        """Open the store at `address`, creating it and migrating its tables. Raises StorageError.

        `patience` is how many seconds a transaction waits for another process that writes.
        `checked` refuses a damaged file; long-lived processes open their own file with it.
        `read_only` writes nothing and migrates nothing, for read-only media. SQLite only: both
        `checked` and `read_only` have no effect on PostgreSQL.
        """
        opening: AbstractAsyncContextManager[Backend]
        if isinstance(address, Path):
            opening = open_sqlite(address, patience, checked=checked, read_only=read_only)
        else:
            try:
                from storage.db.postgres.backend import open_postgres
            except ImportError as error:
                raise Unavailable(NEEDS_EXTRA) from error
            opening = open_postgres(address, patience)
        async with opening as backend:
            yield cls(address, backend)

    def __repr__(self) -> str:
        return f"<Database {self.address}>"

    @property
    def is_away(self) -> bool:
        """True while its server cannot be reached; a file is never away."""
        return self._backend.is_away

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect, and with it the database engine."""
        return Dialect.SQLITE if isinstance(self.address, Path) else Dialect.POSTGRES

    async def execute(self, sql: str, values: Values = ()) -> int:
        """Run a statement in a durable transaction; return how many rows it has changed."""
        return await self.write(lambda db: db.execute(sql, values).rowcount)

    async def executemany(self, sql: str, values: Iterable[Values]) -> None:
        """Run a statement once for each set of values, all in one durable transaction."""
        await self.write(lambda db: db.executemany(sql, values))

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query."""
        return await self.read(lambda db: db.execute(sql, values).fetchall())

    async def fetch_one(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row of a query, or None."""
        rows = await self.fetch_all(sql, values)
        return rows[0] if rows else None

    async def neighbours(self, folder: Path) -> dict[str, Address]:
        """Return the addresses of the other tendrils' stores by name: files, or schemas."""
        address = self.address
        if isinstance(address, Path):
            return {path.stem: path for path in other_files(folder, address)}
        rows = await self.fetch_all(SCHEMAS_WITH, [PREFIX, "turns"])
        names = [str(row[0]).removeprefix(PREFIX) for row in rows]
        return {name: PostgresSchema(address.url, name) for name in names if name != address.name}


class Repository:
    """The base of classes that read and write some of the tables in a database.

    What needs several statements is a method of a connection, decorated with `reads` or `writes`.
    All methods that await the database raise StorageError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


R = TypeVar("R", bound=Repository)


def reads(
    method: Callable[Concatenate[R, Connection, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Have a method of a repository, which is given a connection, read one snapshot."""

    @wraps(method)
    async def read(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(partial(method, self), *args, **kwargs)

    return read


def writes(
    method: Callable[Concatenate[R, Connection, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Have a method of a repository, which is given a connection, run in a durable transaction."""

    @wraps(method)
    async def write(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda db: method(self, db, *args, **kwargs))

    return write


def other_files(data: Path, log: Path) -> list[Path]:
    """Return the files in the folder `data` that are stores of Terrarium, without `log`."""

    def is_store(path: Path) -> bool:
        # Other programs may keep files in the folder too. A file that cannot be read at the moment
        # counts as ours: the caller's work on it then fails and is retried, instead of being
        # skipped.
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
                tables = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'")
                return tables.fetchone() is not None
        except sqlite3.Error as error:
            return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB

    found = (path for path in sorted(data.glob("*.db")) if path.resolve() != log.resolve())
    return [path for path in found if is_store(path)]
