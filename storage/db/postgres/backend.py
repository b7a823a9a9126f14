"""The PostgreSQL backend: connections, transactions and durability."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
import structlog
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from storage.connection import Connection, Row
from storage.db.address import PostgresSchema
from storage.db.errors import Conflict, Rejected, Unavailable
from storage.db.postgres.connection import (
    PostgresConnection,
    adapt,
    in_one_line,
    row_factory,
    unavailable,
)
from storage.db.postgres.schemas import migrate
from terrarium.cancellation import await_shielded

_READERS = 3  # threads, each with a connection
_WRITERS = 3  # threads; one writes at a time, besides those that are not exclusive
# Seconds to wait for the outcome of a COMMIT during which the server went away.
_OUTCOME_TIMEOUT = 300.0
_RETRY_PAUSE = 0.2  # seconds between two attempts to reach a server that is away
_IDLE_TIMEOUT = 60.0  # seconds after which an unused session is closed: PostgreSQL has few
# Seconds after which a listener wakes by itself, in case a notification was lost.
_WAKE_INTERVAL = 30.0
# One lock for each schema, held until the end of the transaction.
_LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 0))"
_TRY_LOCK = "SELECT 1 WHERE pg_try_advisory_lock(hashtextextended(current_schema() || %s, 0))"
# One round trip for the lock, the number of the write, see `_was_committed`, and the notification,
# which PostgreSQL delivers when the transaction commits, on a channel with the name of the schema.
_LOCK_AND_NUMBER_WRITE = f"""
WITH numbered AS (
    INSERT INTO writers VALUES (%s, %s, now()) ON CONFLICT (name)
    DO UPDATE SET last_write = excluded.last_write, time = excluded.time
) {_LOCK_SCHEMA}, pg_notify(current_schema(), '')"""
_SESSION_OPTIONS = (
    "-c plan_cache_mode=force_custom_plan"  # the best plan of a search depends on its words
    " -c jit=off"  # compiling takes longer than a search
    " -c synchronous_commit=on"  # a commit returns once flushed, whatever the server's default
    " -c gin_pending_list_limit=256kB"  # every search scans the pending list entry by entry
)
# A host that has vanished sends no end of a connection: without these, requests would hang for as
# long as TCP tries, a quarter of an hour. The parameters of the URL take precedence.
_TIMEOUTS: dict[str, Any] = {
    "connect_timeout": 5,  # seconds
    "tcp_user_timeout": 10_000,  # milliseconds
    "keepalives_idle": 5,  # seconds
    "keepalives_interval": 2,
    "keepalives_count": 3,
}

T = TypeVar("T")
P = ParamSpec("P")

_log = structlog.get_logger()


class PostgresBackend:
    """A schema of PostgreSQL.

    An advisory lock allows one write transaction to a schema at a time, as in an SQLite file. So
    what holds for two processes that share a file also holds for two machines that share a schema.
    Only transactions with `exclusive=False` run concurrently, and must lock rows themselves.

    Every commit waits until the server has flushed it, even with `durable=False`: a crash of the
    server would lose commits that were not flushed, unnoticed by a process that goes on and waits
    for a later flush. With SQLite such commits outlive the process, and only a power cut, which
    also ends the process, loses them.

    `is_away` is True while no connection can be opened.
    """

    def __init__(self, address: PostgresSchema, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._writers = _pool(address, patience, read_only=False, size=_WRITERS)
        self._readers = _pool(address, patience, read_only=True, size=_READERS)
        self._writing = ThreadPoolExecutor(_WRITERS, thread_name_prefix="writer")
        self._reading = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        self._lock = asyncio.Lock()
        self._name = secrets.token_hex(8)  # of our row in the table `writers`
        self._last_write = 0  # the number of our last write, stored in that row
        self.is_away = False

    def connect(self) -> None:
        """Open the pools. Blocks."""
        self._writers.open()
        self._readers.open()

    def close(self) -> None:
        """Close the pools once the work in progress has ended. Blocks."""
        for threads in (self._writing, self._reading):
            threads.shutdown()
        self._writers.close()
        self._readers.close()

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, exclusive: bool = True
    ) -> T:
        """Run `work` in one durable transaction and return its result; if the connection is lost
        during the COMMIT of an exclusive one, find out whether that took effect."""

        def write_beside_others() -> T:
            with self._writers.connection() as raw, raw.transaction():
                return work(PostgresConnection(raw))

        if not exclusive:
            return await self._in_writer(write_beside_others)
        # Our own lock first: without it several connections of this process, which has few, could
        # wait for the advisory lock at once.
        async with self._lock:
            return await self._in_writer(partial(self._write, work))

    async def _in_writer(self, call: Callable[[], T]) -> T:
        running = asyncio.get_running_loop().run_in_executor(self._writing, call)
        try:
            result = await await_shielded(running)
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(f"another transaction was quicker: {in_one_line(error)}") from error
        except psycopg.Error as error:
            if isinstance(error, PoolTimeout):
                self._note_outage(error)
            what = "the database cannot be written"
            if isinstance(error, _REJECTED):
                raise Rejected(f"{what}: {in_one_line(error)}") from error
            raise unavailable(error, what) from error
        self._note_outage(None)
        return result

    def _note_outage(self, error: psycopg.Error | None) -> None:
        """Note and log, once each, that no connection can be opened, or one can again."""
        if error is None and self.is_away:
            _log.info("postgres.back")
        elif error is not None and not self.is_away:
            _log.warning("postgres.away", reason=in_one_line(error))
        self.is_away = error is not None

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
        if unanswered is not None and not self._was_committed():
            raise unanswered
        return result

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
                    query = "SELECT last_write FROM writers WHERE name = %s"
                    row = raw.execute(query, [self._name]).fetchone()
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(_RETRY_PAUSE)
            else:
                return row is not None and row[0] == self._last_write

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def run() -> T:
            with self._readers.connection() as raw, raw.transaction():
                return work(PostgresConnection(raw), *args, **kwargs)

        try:
            result = await asyncio.get_running_loop().run_in_executor(self._reading, run)
        except psycopg.Error as error:
            if isinstance(error, PoolTimeout):
                self._note_outage(error)
            raise unavailable(error, "the database cannot be read") from error
        self._note_outage(None)
        return result

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        return session_lock(self._address, "", self._patience)

    async def sync(self) -> None:
        """Do nothing, because every commit is durable."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        def run() -> list[Row]:
            with self._writers.connection() as raw:
                cursor = raw.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []

        return await self._in_writer(run)

    async def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever a NOTIFY tells of a write to this schema, and after each (re)connection or
        `_WAKE_INTERVAL` seconds, as notifications are lost while nobody listens."""
        channel = sql.Identifier(self._address.schema)
        while True:
            try:
                listener = await psycopg.AsyncConnection.connect(
                    _conninfo(self._address), autocommit=True
                )
            except psycopg.OperationalError as error:
                self._note_outage(error)
                await asyncio.sleep(_RETRY_PAUSE)
                continue
            self._note_outage(None)
            with suppress(psycopg.OperationalError):
                async with listener as raw:
                    await raw.execute(sql.SQL("LISTEN {}").format(channel))
                    yield
                    while True:
                        async for _ in raw.notifies(timeout=_WAKE_INTERVAL, stop_after=1):
                            pass
                        yield


class _Pool(ConnectionPool[Any]):
    """A pool that tries to connect for as long as somebody waits for a connection; those of the
    base class end earlier, with pauses that double, and miss the return of the server for
    seconds."""

    def getconn(self, timeout: float | None = None) -> Any:
        patience = self.timeout if timeout is None else timeout
        until = time.monotonic() + patience
        while True:
            left = until - time.monotonic()
            try:
                return super().getconn(min(left, _RETRY_PAUSE))
            except PoolTimeout:
                if left <= _RETRY_PAUSE:
                    waited = f"couldn't get a connection after {patience:.2f} sec"
                    raise PoolTimeout(waited) from None


@asynccontextmanager
async def open_postgres(address: PostgresSchema, patience: float) -> AsyncIterator[PostgresBackend]:
    """Open a schema as `Database.open` says. Raises StorageError."""

    def create_and_migrate() -> None:
        try:
            with psycopg.connect(
                _conninfo(address, patience), autocommit=True, row_factory=row_factory
            ) as raw:
                adapt(raw)
                migrate(PostgresConnection(raw), address)
        except psycopg.Error as error:
            raise unavailable(error, f"{address}: cannot be used as a database") from error

    await asyncio.to_thread(create_and_migrate)
    # The pools warn at each attempt to reconnect; `_note_outage` logs an outage once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    database = PostgresBackend(address, patience)
    try:
        await asyncio.to_thread(database.connect)
        yield database
    finally:
        await asyncio.to_thread(database.close)


@asynccontextmanager
async def session_lock(address: PostgresSchema, name: str, patience: float) -> AsyncIterator[None]:
    """Hold an advisory lock of a schema, "" for that of its writers, which ends with its
    connection. Raises Unavailable when somebody else still holds it after `patience` seconds."""
    until = time.monotonic() + patience
    try:
        raw = await psycopg.AsyncConnection.connect(_conninfo(address), autocommit=True)
        async with raw:
            await raw.execute("SET idle_session_timeout = 0")
            # Neither a transaction nor a statement that waits: the snapshot of either would keep
            # VACUUM from removing rows.
            while not await (await raw.execute(_TRY_LOCK, [name])).fetchone():
                if time.monotonic() > until:
                    raise Unavailable(f"{address}: another process holds the lock{name}")
                await asyncio.sleep(_RETRY_PAUSE)
            yield
    except psycopg.Error as error:
        raise unavailable(error, "the database cannot be reached") from error


def _pool(address: PostgresSchema, patience: float, *, read_only: bool, size: int) -> _Pool:
    def configure(raw: psycopg.Connection[Any]) -> None:
        adapt(raw)
        raw.read_only = read_only
        if read_only:  # one snapshot for all queries of a transaction; by default each has its own
            raw.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    return _Pool(
        _conninfo(address, patience),
        min_size=0,
        max_size=size,
        max_idle=_IDLE_TIMEOUT,
        open=False,
        configure=configure,
        check=ConnectionPool.check_connection,
        timeout=patience,
        reconnect_timeout=0,  # seconds; `getconn` tries again instead
        kwargs={"autocommit": True, "row_factory": row_factory},
    )


def _conninfo(address: PostgresSchema, patience: float | None = None) -> str:
    """Return the connection string of a session; `patience` is the timeout of locks, in seconds."""
    options = f'{_SESSION_OPTIONS} -c search_path="{address.schema}",public'
    if patience is not None:
        options += f" -c lock_timeout={int(patience * 1000)}"
    known = _TIMEOUTS | conninfo_to_dict(address.url)
    return make_conninfo(**known | {"options": options, "application_name": address.schema})


_REJECTED = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.ProgramLimitExceeded)
"""Errors about the values of a write: of constraints, of types, of the size of an index entry."""
