"""The database of a tendril, whichever kind it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from storage.connection import AsyncConnection, Connection, Dialect, Row, Values
from storage.db.address import PREFIX, Address, PostgresSchema
from storage.db.backend import Backend
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
_PATIENCE = 5.0  # seconds to wait for another process that writes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


def to_micros(time: datetime) -> int:
    """Return the microseconds since 1970 of an aware time, exact."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """Return the UTC time of a number that `to_micros` made."""
    return _EPOCH + timedelta(microseconds=micros)


class Database:
    """An SQLite file in WAL mode, or a schema of PostgreSQL. Get one with `open`.

    Its verbs are `transaction`, `write`, `read`, `fetch_all` and `fetch_one`. All of them raise
    Unavailable when the database cannot do it. One transaction writes at a time, whichever process
    or machine it is of.
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
        patience: float = _PATIENCE,
        checked: bool = False,
        read_only: bool = False,
    ) -> AsyncIterator[Database]:
        """Open what is at `address`, creating it and migrating its tables. Raises StorageError.

        `patience` is how many seconds a transaction waits for another process that writes. With
        `checked` a damaged file is refused; whoever lives in a file begins so. With `read_only`
        nothing is written, not even beside it: for media that cannot be written.
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
        """Where it is."""
        return self._address

    @property
    def dialect(self) -> Dialect:
        """The kind of database."""
        return Dialect.SQLITE if isinstance(self._address, Path) else Dialect.POSTGRES

    def transaction(
        self, *, exclusive: bool = True
    ) -> AbstractAsyncContextManager[AsyncConnection]:
        """Yield a connection in a transaction; durable. Any error rolls it back.

        One that is not `exclusive` may run beside others, where the database can do that: it has to
        lock the rows that it changes. Raises Unavailable.
        """
        return self._backend.transaction(exclusive=exclusive)

    async def write(
        self, work: Callable[[Connection], T], *, durable: bool = True, inline: bool = False
    ) -> T:
        """Return the result of `work`, run in one transaction; any error rolls it back.

        It runs in a thread; with `inline` in the caller's, where that is faster for a few rows and
        the database can do it; inline work must not be `durable`. What is not durable is once
        `sync` has returned. Raises Unavailable.
        """
        return await self._backend.write(work, durable=durable, inline=inline)

    async def read(self, work: Callable[[Connection], T], *, inline: bool = False) -> T:
        """Return the result of `work`; all its queries see one snapshot.

        It runs in a thread with a connection of its own, so that it may take long; with `inline` in
        the caller's, where that is faster for a few rows and the database can do it. Raises
        Unavailable.
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
        """Make durable all that has been committed so far. Raises Unavailable."""
        await self._backend.sync()

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever lines may have been logged, whoever did it, for ever. Changes that follow
        one another closely are one."""
        return self._backend.changes()

    async def neighbours(self, folder: Path) -> dict[str, Address]:
        """Return where other tendrils keep things, by name: files in `folder`, or other schemas of
        the database. Raises Unavailable."""
        address = self._address
        if isinstance(address, Path):
            return {path.name: path for path in other_files(folder, address)}
        names = [str(row[0]).removeprefix(PREFIX) for row in await self.fetch_all(SCHEMAS)]
        return {name: PostgresSchema(address.url, name) for name in names if name != address.name}

    async def execute_outside_transaction(self, statement: str) -> list[Row]:
        """Return the rows of a statement that no transaction may contain, as PRAGMA or VACUUM.

        Raises Unavailable.
        """
        return await self._backend.execute_outside_transaction(statement)
