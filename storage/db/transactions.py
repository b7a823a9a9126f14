"""What a thread does with the connection that writes, while nobody else uses it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], *, lasting: bool
) -> T:
    """What `work` returns, inside BEGIN IMMEDIATE ... COMMIT, undone on any error.

    Unless `lasting` the commit does not wait for the disk: everybody reads it, and it outlives
    this process, but a power cut may undo it until the write-ahead log is `fsync_wal`.
    """
    if lasting:
        return commit_transaction(connection, work)
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        return commit_transaction(connection, work)
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def commit_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]
) -> T:
    """What `work` returns, inside BEGIN IMMEDIATE ... COMMIT, undone on any error."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.rollback()
        raise
    return result


def fsync_wal(wal: str) -> None:
    """Bring a write-ahead log to the disk: what SQLite does at the end of a lasting commit
    (https://www.sqlite.org/pragma.html#pragma_synchronous). Raises OSError."""
    with contextlib.suppress(FileNotFoundError):  # then commits go to the file itself, and wait
        descriptor = os.open(wal, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


async def await_shielded(running: asyncio.Future[T]) -> T:
    """The result of what writes, awaited to its end also by who is cancelled: until then a thread
    has the connection."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()
        raise
