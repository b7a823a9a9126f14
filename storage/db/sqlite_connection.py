"""Connections to SQLite that say what they are to."""

from __future__ import annotations

import sqlite3

import aiosqlite

from storage.connection import Dialect


class SqliteConnection(sqlite3.Connection):
    """A connection that says what it is to."""

    dialect = Dialect.SQLITE


class AsyncSqliteConnection(aiosqlite.Connection):
    """A connection for the event loop that says what it is to."""

    dialect = Dialect.SQLITE
