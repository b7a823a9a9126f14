"""Deleting so that the bytes are gone from the file, and from the write-ahead log beside it.

A small file is written anew. A big one is not, as nobody can write meanwhile: what is deleted, and
every free page, is overwritten; only in the corners of pages that were once divided may a piece of
what was deleted be left, until somebody writes the file anew (`terrarium logs vacuum`).

PostgreSQL writes a small schema anew as well (`VACUUM FULL`), and takes the dead rows out of a big
one. Its write-ahead log, its archives and its backups are the server's: docs/postgres.md says how
long they keep what was deleted.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from storage.connection import Dialect
from storage.db.address import Address
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
    if database.dialect is Dialect.POSTGRES:
        yield
        await _vacuum_tables(database, full=await _schema_size(database) <= small)
        return
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
    """Write all of it anew; others who write wait for it. Raises Unavailable."""
    if database.dialect is Dialect.POSTGRES:
        await _vacuum_tables(database, full=True)
        return
    await database.execute_outside_transaction("VACUUM")
    await _empty_wal(database)


def remove_copies(log: Address, data: Path, older_than: timedelta = timedelta(0)) -> None:
    """Remove the copies of the log and of the files in `data` that are at least so old.

    Raises Unavailable.
    """
    until = time.time() - older_than.total_seconds()
    found = set(data.glob("*.db.before-*"))
    if isinstance(log, Path):
        found.update(copies(log))
    try:
        for copy in found:
            with suppress(FileNotFoundError):  # another process removes them too
                if not older_than or copy.stat().st_mtime < until:
                    copy.unlink()
    except OSError as error:
        raise Unavailable(f"{error.filename}: cannot be removed: {error.strerror}") from error


async def _vacuum_tables(database: Database, *, full: bool) -> None:
    """Take dead rows out of every table of a schema; with `full` each is written into a new file,
    and locked meanwhile."""
    rows = await database.fetch_all(
        "SELECT quote_ident(tablename) AS name FROM pg_tables"
        " WHERE schemaname = current_schema() ORDER BY 1"
    )
    options = "FULL, ANALYZE" if full else "ANALYZE"
    for row in rows:
        await database.execute_outside_transaction(f"VACUUM ({options}) {row['name']}")
    if full:  # samples of what columns hold, taken by every ANALYZE
        await database.execute_outside_transaction("VACUUM FULL pg_catalog.pg_statistic")


async def _schema_size(database: Database) -> int:
    row = await database.fetch_one(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
        " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
    )
    return int(row[0] or 0) if row else 0


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
