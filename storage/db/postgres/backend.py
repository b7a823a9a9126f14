"""The PostgreSQL backend: connections, transactions and durability."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from storage.connection import AsyncConnection, Connection, Row, Values
from storage.db.address import PostgresSchema
from storage.db.errors import Conflict, Rejected, Unavailable
from storage.db.postgres.connection import (
    AsyncPostgresConnection,
    PostgresConnection,
    adapt,
    in_one_line,
    row_factory,
)
from storage.db.postgres.migration import migrate
from storage.db.postgres.outage_log import outages
from terrarium.cancellation import await_shielded

_READER_THREADS = 3  # threads, each with a connection
_SHARED_CONNECTIONS = 4  # connections of the event loop
# Seconds to wait for the outcome of a COMMIT during which the server went away.
_OUTCOME_TIMEOUT = 300.0
_RETRY_PAUSE = 0.2  # seconds between two attempts to reach a server that is away
# Seconds after which a listener wakes by itself, in case a notification was lost.
_WAKE_INTERVAL = 30.0
# One lock for each schema, held until the end of the transaction.
_LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 0))"
# One round trip for the lock and the number of the write, see `_was_committed`.
_LOCK_AND_NUMBER_WRITE = f"""
WITH numbered AS (
    INSERT INTO writers VALUES (%s, %s, now()) ON CONFLICT (name)
    DO UPDATE SET last_write = excluded.last_write, time = excluded.time
) {_LOCK_SCHEMA}"""
_SESSION_OPTIONS = (
    "-c plan_cache_mode=force_custom_plan"  # the best plan of a search depends on its words
    " -c jit=off"  # compiling takes longer than a search
    " -c synchronous_commit=on"  # a commit returns once flushed, whatever the server's default
    " -c gin_pending_list_limit=256kB"  # every search scans the pending list entry by entry
)

T = TypeVar("T")


class PostgresBackend:
    """A schema of PostgreSQL. Use `open` to get one.

    An advisory lock allows one write transaction to a schema at a time, as in an SQLite file. So
    what holds for two processes that share a file also holds for two machines that share a schema.
    Only transactions with `exclusive=False` run concurrently, and must lock rows themselves.

    Every commit waits until the server has flushed it, even with `durable=False`: a crash of the
    server would lose commits that were not flushed, unnoticed by a process that goes on and waits
    for a later flush. With SQLite such commits outlive the process, and only a power cut, which
    also ends the process, loses them.
    """

    def __init__(
        self,
        address: PostgresSchema,
        writers: ConnectionPool[Any],
        readers: ConnectionPool[Any],
        shared: AsyncConnectionPool[Any],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._address = address
        self._writers = writers
        self._readers = readers
        self._shared = shared
        self._threads = threads
        self._lock = asyncio.Lock()
        self._name = secrets.token_hex(8)  # of our row in the table `writers`
        self._last_write = 0  # the number of our last write, stored in that row

    @classmethod
    @asynccontextmanager
    async def open(
        cls, address: PostgresSchema, *, patience: float
    ) -> AsyncIterator[PostgresBackend]:
        """Open a schema, creating it and migrating its tables. Raises StorageError."""
        await asyncio.to_thread(_prepare, address, patience)
        outages.install()
        with ThreadPoolExecutor(_READER_THREADS + 1, thread_name_prefix="postgres") as threads:
            writers = _pool(address, patience, read_only=False, size=1)
            readers = _pool(address, patience, read_only=True, size=_READER_THREADS)
            shared = _async_pool(address, patience)
            try:
                await asyncio.gather(
                    asyncio.to_thread(writers.open), asyncio.to_thread(readers.open), shared.open()
                )
                yield cls(address, writers, readers, shared, threads)
            finally:
                await asyncio.gather(
                    asyncio.to_thread(writers.close),
                    asyncio.to_thread(readers.close),
                    shared.close(),
                )

    def __repr__(self) -> str:
        return f"<PostgresBackend {self._address}>"

    @asynccontextmanager
    async def transaction(self, *, exclusive: bool = True) -> AsyncIterator[AsyncConnection]:
        """Yield a connection in a transaction; any exception rolls it back.

        If the connection is lost during the COMMIT of an exclusive transaction, it finds out
        whether that took effect.
        """
        if not exclusive:
            async with self._transaction() as connection:
                yield connection
            return
        # Our own lock first: without it several connections of this process, which has few, could
        # wait for the advisory lock at once.
        async with self._lock:
            self._last_write += 1
            is_committing = False
            try:
                async with self._transaction() as connection:
                    await connection.raw.execute(
                        _LOCK_AND_NUMBER_WRITE, [self._name, self._last_write]
                    )
                    yield connection
                    is_committing = True
            except Unavailable as error:
                is_unanswered = is_committing and isinstance(
                    error.__cause__, psycopg.OperationalError
                )
                if not (is_unanswered and await self._find_outcome()):
                    raise

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncPostgresConnection]:
        try:
            async with self._shared.connection() as raw, raw.transaction():
                yield AsyncPostgresConnection(raw)
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(f"another transaction was quicker: {in_one_line(error)}") from error
        except psycopg.Error as error:
            raise _unwritable(error) from error

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Run `work` in one durable transaction, always in a thread, and return its result.

        If the connection is lost during the COMMIT, it finds out whether that took effect.
        """
        async with self._lock:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._threads, self._write, work)
            try:
                return await await_shielded(running)
            except psycopg.Error as error:
                raise _unwritable(error) from error

    def _write(self, work: Callable[[Connection], T]) -> T:
        unanswered: psycopg.OperationalError | None = None
        self._last_write += 1
        with self._writers.connection() as raw:
            raw.execute("BEGIN")
            try:
                raw.execute(_LOCK_AND_NUMBER_WRITE, [self._name, self._last_write])
                result = work(PostgresConnection(raw))
            except BaseException:
                if not raw.closed:
                    raw.rollback()
                raise
            try:
                raw.execute("COMMIT")
            except psycopg.OperationalError as error:
                if not raw.closed:
                    raise
                unanswered = error
        # Only after leaving the context: the pool has a single writing connection, which the query
        # for the outcome needs too.
        if unanswered is not None and not self._was_committed():
            raise unanswered
        return result

    async def _find_outcome(self) -> bool:
        """Call `_was_committed` in a thread, and await it even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            return await await_shielded(loop.run_in_executor(self._threads, self._was_committed))
        except psycopg.Error as error:
            raise _unwritable(error) from error

    def _was_committed(self) -> bool:
        """Return True if the last write was committed although its COMMIT was never answered, so
        that nobody writes it a second time. Waits up to `_OUTCOME_TIMEOUT` seconds for the server.

        Each write stores its number in this process's row of `writers`, in the same transaction.
        `pg_xact_status` would not do: after a crash the server reuses transaction ids that it lost.
        """
        until = time.monotonic() + _OUTCOME_TIMEOUT
        while True:
            try:
                with self._writers.connection() as raw, raw.transaction():
                    # The old session may still hold the lock and be about to commit: wait for it.
                    raw.execute(_LOCK_SCHEMA)
                    row = raw.execute(
                        "SELECT last_write FROM writers WHERE name = %s", [self._name]
                    ).fetchone()
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(_RETRY_PAUSE)
            else:
                return row is not None and row[0] == self._last_write

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Run `work` on one snapshot, always in a thread, and return its result."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._read, work)
        except psycopg.Error as error:
            raise _unreadable(error) from error

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._readers.connection() as raw, raw.transaction():
            return work(PostgresConnection(raw))

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query."""
        try:
            async with (
                self._shared.connection() as raw,
                AsyncPostgresConnection(raw).execute(sql, values) as cursor,
            ):
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise _unreadable(error) from error

    async def sync(self) -> None:
        """Do nothing, because every commit is durable."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that is not allowed inside a transaction, and return its rows."""
        try:
            async with self._shared.connection() as raw:
                cursor = await raw.execute(statement.encode())
                return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise _unwritable(error) from error

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever a NOTIFY says that lines were logged in this schema, for ever.

        It also yields after each (re)connection, because notifications sent while nobody listens
        are lost, and every `_WAKE_INTERVAL` seconds.
        """
        channel = sql.Identifier(self._address.schema)
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    _conninfo(self._address), autocommit=True
                ) as raw:
                    await raw.execute(sql.SQL("LISTEN {}").format(channel))
                    yield
                    while True:
                        async for _ in raw.notifies(timeout=_WAKE_INTERVAL, stop_after=1):
                            pass
                        yield
            except psycopg.OperationalError:
                await asyncio.sleep(_RETRY_PAUSE)


def _prepare(address: PostgresSchema, patience: float) -> None:
    """Create the schema, if it does not exist, and migrate its tables."""
    try:
        with psycopg.connect(
            _conninfo(address, patience), autocommit=True, row_factory=row_factory
        ) as raw:
            adapt(raw)
            migrate(PostgresConnection(raw), address)
    except psycopg.Error as error:
        raise Unavailable(
            f"{address}: cannot be used as a database: {in_one_line(error)}"
        ) from error


def _pool(
    address: PostgresSchema, patience: float, *, read_only: bool, size: int
) -> ConnectionPool[Any]:
    def configure(raw: psycopg.Connection[Any]) -> None:
        adapt(raw)
        raw.read_only = read_only
        if read_only:  # one snapshot for all queries of a transaction; by default each has its own
            raw.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        outages.end()

    return ConnectionPool(
        _conninfo(address, patience),
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        check=ConnectionPool.check_connection,
        timeout=patience,
        reconnect_timeout=patience,  # its pauses double, and would outlast the caller's patience
        kwargs={"autocommit": True, "row_factory": row_factory},
    )


def _async_pool(address: PostgresSchema, patience: float) -> AsyncConnectionPool[Any]:
    async def configure(raw: psycopg.AsyncConnection[Any]) -> None:
        adapt(raw)
        outages.end()

    return AsyncConnectionPool(
        _conninfo(address, patience),
        min_size=1,
        max_size=_SHARED_CONNECTIONS,
        open=False,
        configure=configure,
        check=AsyncConnectionPool.check_connection,
        timeout=patience,
        reconnect_timeout=patience,
        kwargs={"autocommit": True, "row_factory": row_factory},
    )


def _conninfo(address: PostgresSchema, patience: float | None = None) -> str:
    """Return the connection string, with the search path and the other settings of a session.

    `patience` in seconds becomes the timeout of locks, advisory ones included.
    """
    options = f'{_SESSION_OPTIONS} -c search_path="{address.schema}",public'
    if patience is not None:
        options += f" -c lock_timeout={int(patience * 1000)}"
    return make_conninfo(address.url, options=options, application_name=address.schema)


_REJECTED = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.ProgramLimitExceeded)
"""Errors about the values of a write: of constraints, of types, of the size of an index entry."""


def _unwritable(error: psycopg.Error) -> Unavailable:
    kind = Rejected if isinstance(error, _REJECTED) else Unavailable
    return kind(f"the database cannot be written: {in_one_line(error)}")


def _unreadable(error: psycopg.Error) -> Unavailable:
    return Unavailable(f"the database cannot be read: {in_one_line(error)}")
