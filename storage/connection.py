"""Connections, cursors and rows as the stores use them, be they of SQLite or of PostgreSQL.

SQL is written once, in what both understand. Placeholders are SQLite's (`?`, `?1`, `:name`);
`storage.db.postgres.connection` translates them. Where the two differ in kind, as in full-text
search, code asks for the `dialect` of its connection.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

Values = Sequence[Any] | Mapping[str, Any]
"""The values of a statement's placeholders, by position or by name."""


class Dialect(StrEnum):
    """The kinds of database."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


NOTIFY = "SELECT pg_notify(current_schema(), '')"
"""Tells who waits for changes of a schema of PostgreSQL that there is one, once it is committed."""


class Row(Protocol):
    """A row: its values by position or by name of the column, in order when it is iterated."""

    def __getitem__(self, key: int | str | slice, /) -> Any:
        """Return a value, or the values of a slice."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values."""

    def __len__(self) -> int:
        """Count the values."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that a statement has changed."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""

    def fetchmany(self, size: int = ..., /) -> Sequence[Any]:
        """Return the next rows, at most `size`."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows that are left."""


class Connection(Protocol):
    """A connection in a transaction, for one thread."""

    @property
    def dialect(self) -> Dialect:
        """The kind of the database."""

    def execute(self, sql: str, values: Values = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, sql: str, values: Iterable[Values], /) -> Cursor:
        """Run a statement with each of several values."""

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Insert rows in the way that is fastest for many. `into` is a table, with columns in
        brackets where the rows have not all of them."""


class AsyncCursor(Protocol):
    """The result of a statement, fetched without blocking."""

    @property
    def rowcount(self) -> int:
        """The number of rows that a statement has changed."""

    async def fetchone(self) -> Any:
        """Return the next row, None after the last."""

    async def fetchall(self) -> Iterable[Any]:
        """Return all rows that are left."""


class Execution(Protocol):
    """A statement that runs: awaited, or entered, it is its cursor."""

    def __await__(self) -> Generator[Any, Any, AsyncCursor]:
        """Wait for the result."""

    async def __aenter__(self) -> AsyncCursor:
        """Wait for the result."""

    async def __aexit__(self, *exc: Any) -> bool | None:
        """Close the cursor."""


class AsyncConnection(Protocol):
    """A connection in a transaction, for the event loop."""

    @property
    def dialect(self) -> Dialect:
        """The kind of the database."""

    def execute(self, sql: str, values: Values = ..., /) -> Execution:
        """Run a statement."""

    async def executemany(self, sql: str, values: Iterable[Values], /) -> object:
        """Run a statement with each of several values."""
