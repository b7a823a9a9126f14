"""Protocols of connections, cursors and rows, common to SQLite and PostgreSQL.

SQL is written once, in the subset that both databases understand. Placeholders are SQLite's (`?`,
`?1`, `:name`); `storage.db.postgres.connection` translates them. Where the databases differ in
kind, as in full-text search, code branches on the connection's `dialect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

Values = Sequence[Any] | Mapping[str, Any]
"""The values of a statement's placeholders, by position or by name."""


class Dialect(StrEnum):
    """The SQL dialect, and with it the database engine, of a connection."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


GIVEN = "(SELECT CAST(value AS BIGINT) FROM json_each(?))"
"""List of ids for the operator IN, bound as one value: a JSON list."""


def adding(table: str, key: Sequence[str], amounts: Sequence[str]) -> str:
    """Return the end of an INSERT that adds its `amounts` to those of a row with the same `key`."""
    sums = ", ".join(f"{each} = {table}.{each} + excluded.{each}" for each in amounts)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sums}"


class Row(Protocol):
    """A row: values by position or column name; iteration yields them in column order."""

    def __getitem__(self, key: int | str | slice, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def keys(self) -> Sequence[str]:
        """Return the names of the columns."""


class Cursor(Protocol):
    """The result of a statement; iteration yields its remaining rows."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection inside a transaction, used by one thread at a time."""

    @property
    def dialect(self) -> Dialect:
        """The database engine."""

    def execute(self, sql: str, values: Values = ..., /) -> Cursor:
        """Run a statement."""

    def executemany(self, sql: str, values: Iterable[Values], /) -> Cursor:
        """Run a statement once for each set of values."""

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Insert rows by the fastest bulk method of the database. `into` names a table, followed by
        columns in parentheses when the rows do not have a value for each column."""
