"""One SQLite file: opened, brought up to date, one writer, readers that never block it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from storage.errors import NewerSchema, Unavailable
from storage.readers import Readers
from storage.rebuild import rebuild

_INDEXED = 4  # the migration from which on events are indexed and counted as they are written
_PATIENCE = 5.0  # seconds to wait for another process that writes
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
    """A file with one writing connection and readers. Get one with `opened`."""

    def __init__(
        self, writer: aiosqlite.Connection, reader: aiosqlite.Connection, readers: Readers
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._readers = readers
        self._lock = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def opened(cls, path: Path, *, patience: float = _PATIENCE) -> AsyncIterator[Database]:
        """Open `path`, creating it and bringing its tables up to date. Raises StorageError.

        `patience` is how many seconds a transaction waits for another process that writes.
        """
        writer = await _connect(path, patience)
        try:
            await _prepared(writer, path)
            async with _reader(path) as reader, Readers.opened(path, patience) as readers:
                yield cls(writer, reader, readers)
        finally:
            await writer.close()

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

    async def outside(self, statement: str) -> None:
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

    async def all(self, sql: str, values: Values = ()) -> list[Row]:
        """Every row of a query, read beside the writer. Raises Unavailable."""
        try:
            return await read_all(self._reader, sql, values)
        except sqlite3.Error as error:
            raise Unavailable(f"the database cannot be read: {error}") from error

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, run in a thread with a reading connection: for what takes several
        queries or long, as nobody else waits for it. Raises Unavailable."""
        try:
            return await self._readers.run(work)
        except sqlite3.Error as error:
            raise Unavailable(f"the database cannot be read: {error}") from error

    async def version(self) -> int:
        """A number that changes when anybody has written to the file: cheap to poll."""
        row = await self.one("PRAGMA data_version")
        return int(row[0]) if row else 0

    async def one(self, sql: str, values: Values = ()) -> Row | None:
        """The first row of a query, or None."""
        rows = await self.all(sql, values)
        return rows[0] if rows else None


async def read_all(reader: aiosqlite.Connection, sql: str, values: Values) -> list[Row]:
    """Every row of a query on a bare reading connection."""
    rows: Iterable[Row] = await reader.execute_fetchall(sql, values)
    return list(rows)


async def _connect(path: Path, patience: float) -> aiosqlite.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = await aiosqlite.connect(path, isolation_level=None, timeout=patience)
    except (OSError, sqlite3.Error) as error:
        raise Unavailable(f"{path}: cannot be opened: {error}") from error
    return connection


async def _prepared(connection: aiosqlite.Connection, path: Path) -> None:
    try:
        await connection.executescript(_WRITER)
        await _migrate(connection, path)
    except sqlite3.Error as error:
        raise Unavailable(f"{path}: cannot be used as a database: {error}") from error


@asynccontextmanager
async def _reader(path: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(path, isolation_level=None, timeout=_PATIENCE) as reader:
        reader.row_factory = sqlite3.Row
        await reader.execute("PRAGMA query_only = ON")
        yield reader


async def _migrate(connection: aiosqlite.Connection, path: Path) -> None:
    """Run the numbered migrations that the file has not seen, all in one transaction."""
    scripts = _migrations()
    await connection.execute("BEGIN IMMEDIATE")  # two processes may open a new file at once
    async with connection.execute("PRAGMA user_version") as cursor:
        row = await cursor.fetchone()
    version = int(row[0]) if row else 0
    if version > len(scripts):
        raise NewerSchema(
            f"{path}: written by a newer Terrarium (version {version}, known {len(scripts)});"
            " update Terrarium or choose another data folder with --data"
        )
    for script in scripts[version:]:
        for statement in _statements(script):
            await connection.execute(statement)
    if 0 < version < _INDEXED:
        await rebuild(connection)
    await connection.execute(f"PRAGMA user_version = {len(scripts)}")
    await connection.execute("COMMIT")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script; `executescript` would end our transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _migrations() -> list[str]:
    folder = files("storage") / "migrations"
    scripts = {item.name: item for item in folder.iterdir() if item.name.endswith(".sql")}
    return [scripts[name].read_text(encoding="utf-8") for name in sorted(scripts)]
