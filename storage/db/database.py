"""The database of a tendril, independent of its backend."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from storage.connection import Connection, Dialect, Row, Values
from storage.db.address import PREFIX, SCHEMAS_WITH, Address, PostgresSchema
from storage.db.errors import Unavailable
from storage.db.sqlite import open_sqlite

__all__ = ["Address", "Connection", "Database", "Repository", "Row", "from_micros", "to_micros"]

NEEDS_EXTRA = "storage on PostgreSQL needs the extra: pip install 'terrarium-irc[postgres]'"
_LOCK_TIMEOUT = 5.0  # seconds to wait for another process that writes
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
        """Run a statement that is not allowed inside a transaction, such as VACUUM or some PRAGMAs,
        and return its rows."""

    def changes(self) -> AsyncGenerator[None, None]:
        """Yield whenever any process may have written, except with `exclusive=False`, for ever.

        The first time is at once, and it yields now and then without a change. Changes in quick
        succession may be merged into one.
        """


class Database:
    """An SQLite file in WAL mode, or a schema of PostgreSQL. Use `open` to get one.

    Its verbs are those of `Backend`, and shorthands for a single statement. Exclusive writes are
    serialised, across processes and, with PostgreSQL, across machines.
    """

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
        """Return the addresses of the other tendrils' stores, by the tendril's name: the files in
        `folder`, or the other schemas of the database."""
        address = self.address
        if isinstance(address, Path):
            return {path.stem: path for path in other_files(folder, address)}
        rows = await self.fetch_all(SCHEMAS_WITH, [PREFIX, "turns"])
        names = [str(row[0]).removeprefix(PREFIX) for row in rows]
        return {name: PostgresSchema(address.url, name) for name in names if name != address.name}


class Repository:
    """The base of classes that read and write some of the tables in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database


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
