"""The database of a tendril, independent of its backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from storage.connection import AsyncConnection, Connection, Dialect, Row, Values
from storage.db.address import PREFIX, Address, PostgresSchema
from storage.db.errors import Unavailable
from storage.db.neighbours import SCHEMAS, other_files
from storage.db.sqlite import SqliteBackend

__all__ = [
    "Address",
    "AsyncConnection",
    "Connection",
    "Database",
    "Row",
    "from_micros",
    "to_micros",
]

NEEDS_EXTRA = "storage on PostgreSQL needs the extra: pip install 'terrarium[postgres]'"
_LOCK_TIMEOUT = 5.0  # seconds to wait for another process that writes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def to_micros(time: datetime) -> int:
    """Return the microseconds from the Unix epoch to an aware time, without rounding."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number of microseconds since the Unix epoch."""
    return _EPOCH + timedelta(microseconds=micros)


class Backend(Protocol):
    """An open database. `Database` documents the methods; all of them raise Unavailable."""

    def transaction(
        self, *, exclusive: bool = True
    ) -> AbstractAsyncContextManager[AsyncConnection]:
        """Yield a connection in a transaction."""

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Run `work` in one transaction and return its result."""

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Run `work` on one snapshot and return its result."""

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query."""

    async def sync(self) -> None:
        """Make all commits so far durable."""

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that is not allowed inside a transaction, and return its rows."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever the log may have changed, for ever."""


class Database:
    """An SQLite file in WAL mode, or a schema of PostgreSQL. Use `open` to get one.

    Its verbs are `transaction`, `write`, `read`, `fetch_all` and `fetch_one`. All of them raise
    Unavailable when the database cannot be reached, read or written. Exclusive write transactions
    are serialised, across processes and, with PostgreSQL, across machines.
    """

    def __init__(self, address: Address, backend: Backend) -> None:
        self._address = address
        self._backend = backend

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
            opening = SqliteBackend.open(
                address, patience=patience, checked=checked, read_only=read_only
            )
        else:
            try:
                from storage.db.postgres.backend import PostgresBackend
            except ImportError as error:
                raise Unavailable(NEEDS_EXTRA) from error
            opening = PostgresBackend.open(address, patience=patience)
        async with opening as backend:
            yield cls(address, backend)

    def __repr__(self) -> str:
        return f"<Database {self._address}>"

    @property
    def address(self) -> Address:
        """The address of the store."""
        return self._address

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect, and with it the database engine."""
        return Dialect.SQLITE if isinstance(self._address, Path) else Dialect.POSTGRES

    def transaction(
        self, *, exclusive: bool = True
    ) -> AbstractAsyncContextManager[AsyncConnection]:
        """Yield a connection in a transaction, durable once committed; any exception rolls it back.

        With `exclusive=False` it may run concurrently with others, where the database supports
        that, and must itself lock the rows that it changes. If PostgreSQL goes away during its
        COMMIT, it may then have taken effect although Unavailable is raised; an exclusive one has
        not. Raises Unavailable; on PostgreSQL also Conflict, when a unique constraint is violated.
        """
        return self._backend.transaction(exclusive=exclusive)

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Run `work` in one transaction and return its result; any exception rolls it back.

        `work` runs in a thread. With `inline` it runs in the caller's thread, which is faster for a
        few rows, if the database supports that; it may then be run a second time, in a thread, and
        must not be `durable`. A commit that is not durable becomes so at the next `sync`. Raises
        Unavailable.
        """
        return await self._backend.write(work, durable=durable, inline=inline)

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Run `work` on one snapshot and return its result.

        `work` runs in a thread with its own connection, so it may take long. With `inline` it runs
        in the caller's thread, which is faster for a few rows, if the database supports that; it
        may then be run a second time, in a thread. Raises Unavailable.
        """
        return await self._backend.read(work, inline=inline)

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        """Return every row of a query. Raises Unavailable."""
        return await self._backend.fetch_all(sql, values)

    async def fetch_one(self, sql: str, values: Values = ()) -> Row | None:
        """Return the first row of a query, or None. Raises Unavailable."""
        rows = await self.fetch_all(sql, values)
        return rows[0] if rows else None

    async def sync(self) -> None:
        """Make all commits so far durable. Raises Unavailable."""
        await self._backend.sync()

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever lines may have been logged, by any process, for ever.

        The first time is at once. Changes in quick succession may be merged into one.
        """
        return self._backend.changes()

    async def neighbours(self, folder: Path) -> dict[str, Address]:
        """Return the addresses of the other tendrils' stores, by the tendril's name: the files in
        `folder`, or the other schemas of the database. Raises Unavailable."""
        address = self._address
        if isinstance(address, Path):
            return {path.stem: path for path in other_files(folder, address)}
        names = [str(row[0]).removeprefix(PREFIX) for row in await self.fetch_all(SCHEMAS)]
        return {name: PostgresSchema(address.url, name) for name in names if name != address.name}

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Run a statement that is not allowed inside a transaction, such as VACUUM or some PRAGMAs,
        and return its rows. Raises Unavailable.
        """
        return await self._backend.execute_outside_transaction(statement)
