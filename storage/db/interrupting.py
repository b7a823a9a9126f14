"""Stopping a long query of SQLite when its time is over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.connection import Connection

_STEPS = 2_000  # instructions of SQLite's machine between two looks at the clock


class Interrupted(Exception):
    """The time of a query is over."""


@contextmanager
def interruptible(connection: Connection, is_late: Callable[[], bool]) -> Iterator[None]:
    """Raise Interrupted from a query inside once `is_late`.

    It has no effect on PostgreSQL, where a query that is stopped ends its transaction: whoever
    calls looks at the clock between queries.
    """
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    try:
        connection.set_progress_handler(is_late, _STEPS)
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        raise Interrupted from error
    finally:
        connection.set_progress_handler(None, 0)
