"""Connections to SQLite that say what they are to."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import aiosqlite

from storage.connection import Dialect


class SqliteConnection(sqlite3.Connection):
    """A connection that says what it is to."""

    dialect = Dialect.SQLITE

    def insert_rows(self, into: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Insert rows."""
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self.executemany(f"INSERT INTO {into} VALUES ({places})", rows)


class AsyncSqliteConnection(aiosqlite.Connection):
    """A connection for the event loop that says what it is to."""

    dialect = Dialect.SQLITE
