"""Secure deletion: the bytes of deleted rows are gone from the file and its write-ahead log.

A small SQLite file is rewritten (`VACUUM`). A big one is not, because writers would wait for too
long: deleted rows and all free pages are overwritten instead, and fragments may survive only in
unused space of pages that were once split, until somebody runs `terrarium logs vacuum`.

A small PostgreSQL schema is rewritten too (`VACUUM FULL`); a big one is only cleared of dead rows.
The write-ahead log, archives and backups belong to the server: docs/postgres.md says how long they
keep deleted rows.
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

MAX_REWRITTEN_SIZE = 256 << 20
"""Size of the largest database, in bytes, that is rewritten whole, which takes a few seconds."""

_PAGES_PER_TRANSACTION = 2_000  # pages overwritten in one transaction, while other writers wait

COPY_LIFETIME = timedelta(days=7)
"""How long the copy of a file (`irc.db.before-N`) is kept that earlier versions made before they
changed it."""


@asynccontextmanager
async def secure_delete(database: Database, small: int = MAX_REWRITTEN_SIZE) -> AsyncIterator[None]:
    """Overwrite what is deleted inside the context once it is left; a database of at most `small`
    bytes is rewritten whole. Raises Unavailable."""
    if database.dialect is Dialect.POSTGRES:
        yield
        row = await database.fetch_one(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
            " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        )
        await _vacuum_tables(database, full=int((row and row[0]) or 0) <= small)
        return
    # It holds for the writing connection, which runs all transactions of this process.
    await database.execute_outside_transaction("PRAGMA secure_delete = ON")
    try:
        yield
        page_size = await _number(database, "page_size")
        if await _number(database, "page_count") * page_size <= small:
            await database.execute_outside_transaction("VACUUM")
        else:  # overwrite all free pages with zeros, by filling a table with zeros and dropping it
            free = await _number(database, "freelist_count")
            await database.execute("CREATE TABLE IF NOT EXISTS wiping (zeros BLOB)")
            for start in range(0, free, _PAGES_PER_TRANSACTION):
                zeros = min(_PAGES_PER_TRANSACTION, free - start) * page_size
                await database.execute("INSERT INTO wiping VALUES (zeroblob(?))", [zeros])
            await database.execute("DROP TABLE wiping")
    finally:
        await database.execute_outside_transaction("PRAGMA secure_delete = OFF")
    # Last: until a checkpoint the new pages are only in the log, and the file has the old ones.
    await _empty_wal(database)


async def vacuum(database: Database) -> None:
    """Rewrite the whole database, while other writers wait. Raises Unavailable."""
    if database.dialect is Dialect.POSTGRES:
        await _vacuum_tables(database, full=True)
        return
    await database.execute_outside_transaction("VACUUM")
    await _empty_wal(database)


def remove_copies(log: Address, data: Path, older_than: timedelta = timedelta(0)) -> None:
    """Remove the copies that earlier versions made before they changed the log or a file in `data`,
    if they are older than `older_than`; by default all. Raises Unavailable.
    """
    until = time.time() - older_than.total_seconds()
    found = set(data.glob("*.db.before-*"))
    if isinstance(log, Path):
        found.update(log.parent.glob(f"{log.name}.before-*"))
    try:
        for copy in found:
            with suppress(FileNotFoundError):  # another process removes them too
                if not older_than or copy.stat().st_mtime < until:
                    copy.unlink()
    except OSError as error:
        raise Unavailable(f"{error.filename}: cannot be removed: {error.strerror}") from error


async def _vacuum_tables(database: Database, *, full: bool) -> None:
    """Vacuum every table of a schema; with `full` each is rewritten, and locked meanwhile."""
    rows = await database.fetch_all(
        "SELECT quote_ident(tablename) AS name FROM pg_tables"
        " WHERE schemaname = current_schema() ORDER BY 1"
    )
    options = "FULL, ANALYZE" if full else "ANALYZE"
    for row in rows:
        await database.execute_outside_transaction(f"VACUUM ({options}) {row['name']}")
    if full:  # ANALYZE stores samples of column values there: their old versions must go too
        await database.execute_outside_transaction("VACUUM FULL pg_catalog.pg_statistic")


async def _empty_wal(database: Database) -> None:
    """Checkpoint the write-ahead log into the file, and truncate it. Raises Unavailable while a
    reader still needs the log: then the first column of the result, `busy`, is not 0."""
    rows = await database.execute_outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")
    if rows and rows[0][0]:
        raise Unavailable("the write-ahead log is still being read")


async def _number(database: Database, pragma: str) -> int:
    row = await database.fetch_one(f"PRAGMA {pragma}")
    return int(row[0]) if row else 0
