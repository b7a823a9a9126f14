"""A verified copy of a store into an empty one, from SQLite to PostgreSQL or back.

One transaction writes everything and compares it with the source, so a copy that is interrupted or
differs leaves the target empty. The full-text index and the counters, which are derived from the
events, are not copied but made anew.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from hashlib import blake2b
from pathlib import Path
from typing import Any

from storage.connection import Connection, Dialect, Row
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log_index import DERIVED_TABLES, add_events

ROWS_PER_BATCH = 2_000
"""Rows that are held in memory, and inserted, at once."""

_NOT_COPIED = DERIVED_TABLES | {"schema_version", "writers"}
_INDEX = re.compile(r"(?:words|parts)_\d+\w*")
_IDENTITY = re.compile(r"(\w+) INTEGER PRIMARY KEY")
_COLUMNS = """
SELECT t.name AS "table", t.sql, c.name, c.pk FROM sqlite_master t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid"""
_PARENTS = """
SELECT t.name, f."table" FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) f"""
_FOR_BULK = (  # nobody searches yet: long pending lists of the indexes do no harm, and save time
    "SET LOCAL gin_pending_list_limit = '64MB'",
    "SET LOCAL work_mem = '64MB'",
)

Report = Callable[[str], None]
"""Receives lines about the progress."""


class TransferError(StorageError):
    """A store could not be copied; the message says what to do about it."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of a table's rows and the sum of their hashes, which does not depend on order."""

    rows: int = 0
    sum: int = 0

    def with_rows(self, rows: Sequence[tuple[Any, ...]]) -> Checksum:
        """Return the checksum of the table with more rows."""
        hashes = (blake2b(repr(row).encode(), digest_size=16).digest() for row in rows)
        total = self.sum + sum(map(int.from_bytes, hashes))
        return Checksum(self.rows + len(rows), total % (1 << 128))


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, those of its primary key, and its identity column, if any."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    identity_column: str | None

    def batches(self, db: Connection) -> Iterator[list[tuple[Any, ...]]]:
        """Yield all rows in batches, in the order of the key; a table without one has few rows."""
        key = _quoted(self.key)
        select = f"SELECT {_quoted(self.columns)} FROM {self.name}"
        if not self.key:
            yield [tuple(row) for row in db.execute(select)]
            return
        after: tuple[Any, ...] = ()
        while True:
            where = f"WHERE ({key}) > ({', '.join('?' * len(after))})" if after else ""
            sql = f"{select} {where} ORDER BY {key} LIMIT ?"
            rows = db.execute(sql, [*after, ROWS_PER_BATCH]).fetchall()
            if not rows:
                return
            # PostgreSQL cannot store NUL in text: both sides are compared without it.
            yield [
                tuple(
                    v.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(v, str) else v
                    for v in row
                )
                for row in rows
            ]
            after = tuple(rows[-1][column] for column in self.key)


async def copy_store(source: Database, target: Database, report: Report) -> int:
    """Copy every row of `source`, to which nobody may write, unless `target` has them already;
    return how many there are. Raises TransferError if it has others, and Unavailable."""
    tables = await _tables(source if target.dialect is Dialect.POSTGRES else target)
    present = await target.read(lambda db: _checksums(db, tables))
    if any(checksum.rows for checksum in present.values()):
        if present != await source.read(lambda db: _checksums(db, tables)):
            aside = ", or move the old files (*.db, *.db-wal, *.db-shm) out of the folder first"
            raise TransferError(
                f"{target.address} has something else in it already; name an empty place"
                + aside * isinstance(target.address, Path)
            )
        return sum(checksum.rows for checksum in present.values())
    loop, is_stopped = asyncio.get_running_loop(), threading.Event()

    def copy(here: Connection) -> dict[str, Checksum]:
        # In a thread of the source, whose snapshot the target's thread reads until it is done.
        work = partial(_copy, here, tables, is_stopped.is_set, report)
        return asyncio.run_coroutine_threadsafe(target.write(work), loop).result()

    try:
        copied = await source.read(copy)
    finally:
        is_stopped.set()  # if this was cancelled, the threads still run
    if target.dialect is Dialect.POSTGRES:  # its planner has no statistics of the rows yet
        await target.execute_outside_transaction("VACUUM (ANALYZE)")
    return sum(checksum.rows for checksum in copied.values())


async def _tables(sqlite: Database) -> list[Table]:
    """Return the tables to copy, each after those that its foreign keys refer to, as SQLite
    describes them; PostgreSQL's have the same names and columns."""
    columns: dict[str, list[Row]] = {}
    for row in await sqlite.fetch_all(_COLUMNS):
        if row["table"] not in _NOT_COPIED and not _INDEX.fullmatch(row["table"]):
            columns.setdefault(row["table"], []).append(row)
    order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(columns, ()))
    for child, parent in await sqlite.fetch_all(_PARENTS):
        order.add(child, parent)
    tables = []
    for name in order.static_order():
        key = sorted((row["pk"], row["name"]) for row in columns[name] if row["pk"])
        identity = _IDENTITY.search(columns[name][0]["sql"])
        names = tuple(row["name"] for row in columns[name])
        primary = tuple(column for _, column in key)
        tables.append(Table(name, names, primary, identity and identity[1]))
    return tables


def _checksums(db: Connection, tables: Sequence[Table]) -> dict[str, Checksum]:
    found = {}
    for table in tables:
        checksum = Checksum()
        for rows in table.batches(db):
            checksum = checksum.with_rows(rows)
        found[table.name] = checksum
    return found


def _copy(
    here: Connection,
    tables: Sequence[Table],
    is_stopped: Callable[[], bool],
    report: Report,
    there: Connection,
) -> dict[str, Checksum]:
    """Copy all rows in the transaction of `there` and compare them; return their checksums."""
    if there.dialect is Dialect.POSTGRES:
        for setting in _FOR_BULK:
            there.execute(setting)
    copied = {}
    for table in tables:
        into = f"{table.name} ({_quoted(table.columns)})"
        copied[table.name] = Checksum()
        for rows in table.batches(here):
            if is_stopped():
                raise TransferError("the copy was stopped")
            there.insert_rows(into, rows)
            if table.name == "events":
                private = there.execute("SELECT id FROM channels WHERE private = 1")
                drift = max(row[0] - row[3] // 1000 for row in rows)
                add_events(there, rows, {row[0] for row in private}, max(0, drift))
            copied[table.name] = copied[table.name].with_rows(rows)
            report(f"{table.name}, {copied[table.name].rows:,} rows")
        if table.identity_column:
            _go_on_numbering(here, there, table)
    for name, found in _checksums(there, tables).items():
        if found != copied[name]:
            raise TransferError(
                f"{name} has {found.rows} rows instead of {copied[name].rows}, or others, after it"
                " was copied; nothing was kept: run the same command again"
            )
    return copied


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _go_on_numbering(here: Connection, there: Connection, table: Table) -> None:
    """Have the identity column of a copied table never use a number a second time."""
    sequence = "pg_get_serial_sequence(?, ?)"
    column = [table.name, table.identity_column]
    if here.dialect is Dialect.POSTGRES:
        name = here.execute(f"SELECT {sequence}", column).fetchone()[0]
        row = here.execute(f"SELECT last_value, is_called FROM {name}").fetchone()
        number = int(row[0]) if row[1] else 0
    else:
        sql = "SELECT seq FROM sqlite_sequence WHERE name = ?"
        row = here.execute(sql, [table.name]).fetchone()
        number = int(row[0]) if row else 0
    last = here.execute(f'SELECT max("{table.identity_column}") FROM {table.name}').fetchone()[0]
    number = max(number, last or 0)
    if number and there.dialect is Dialect.POSTGRES:
        there.execute(f"SELECT setval({sequence}, ?)", [*column, number])
    elif number:
        sql = "SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%AUTOINCREMENT%'"
        if there.execute(sql, [table.name]).fetchone():
            there.execute("DELETE FROM sqlite_sequence WHERE name = ?", [table.name])
            there.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", [table.name, number])
