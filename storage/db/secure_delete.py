"""Deleting so that the bytes are gone from the file, and from the write-ahead log beside it.

A small file is written anew. A big one is not, as nobody can write meanwhile: what is deleted, and
every free page, is overwritten; only in the corners of pages that were once divided may a piece of
what was deleted be left, until somebody writes the file anew (`terrarium logs vacuum`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.db.migration_copy import copies

SMALL = 256 << 20
"""Bytes that are written anew in a few seconds."""

_STEP = 2_000  # pages overwritten in one transaction, which others wait for


KEPT = timedelta(days=7)
"""How long a copy of a file that was made before a migration is kept."""


@asynccontextmanager
async def secure_delete(database: Database, small: int = SMALL) -> AsyncIterator[None]:
    """Overwrite in the file, on leaving, what is deleted inside.

    A file of at most `small` bytes is rewritten whole. Raises Unavailable.
    """
    await database.execute_outside_transaction("PRAGMA secure_delete = ON")
    try:
        yield
        if await _size(database) <= small:
            await database.execute_outside_transaction("VACUUM")
        else:
            await _wipe_free_pages(database)
    finally:
        await database.execute_outside_transaction("PRAGMA secure_delete = OFF")
    await _empty_wal(database)


async def vacuum(database: Database) -> None:
    """Write the whole file anew; others who write wait for it. Raises Unavailable."""
    await database.execute_outside_transaction("VACUUM")
    await _empty_wal(database)


def remove_copies(log_file: Path, data: Path, older_than: timedelta = timedelta(0)) -> None:
    """Remove the copies of the log and of the files in `data` that are at least so old.

    Raises Unavailable.
    """
    until = time.time() - older_than.total_seconds()
    found = {*copies(log_file), *data.glob("*.db.before-*")}
    try:
        for copy in found:
            with suppress(FileNotFoundError):  # another process removes them too
                if not older_than or copy.stat().st_mtime < until:
                    copy.unlink()
    except OSError as error:
        raise Unavailable(f"{error.filename}: cannot be removed: {error.strerror}") from error


async def _empty_wal(database: Database) -> None:
    """Move what is in the write-ahead log to the file, and truncate the log.

    Raises Unavailable when somebody still reads from it: SQLite reports that in the first column
    of the result only, and the log keeps what was deleted.
    """
    rows = await database.execute_outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")
    if rows and rows[0][0]:
        raise Unavailable("the write-ahead log is still being read")


async def _number(database: Database, pragma: str) -> int:
    row = await database.fetch_one(f"PRAGMA {pragma}")
    return int(row[0]) if row else 0


async def _size(database: Database) -> int:
    return await _number(database, "page_count") * await _number(database, "page_size")


async def _wipe_free_pages(database: Database) -> None:
    """Fill all unused pages with zeros: a table of zeros takes them, and gives them back."""
    size = await _number(database, "page_size")
    free = await _number(database, "freelist_count")
    async with database.transaction() as db:
        await db.execute("CREATE TABLE IF NOT EXISTS wiping (zeros BLOB)")
    for start in range(0, free, _STEP):
        async with database.transaction() as db:
            pages = min(_STEP, free - start)
            await db.execute("INSERT INTO wiping VALUES (zeroblob(?))", [pages * size])
    async with database.transaction() as db:
        await db.execute("DROP TABLE wiping")
