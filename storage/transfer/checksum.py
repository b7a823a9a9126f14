"""Checksums of tables, equal in SQLite and PostgreSQL for equal rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from storage.connection import Connection
from storage.transfer.changes import has_table
from storage.transfer.tables import CHECKSUMS, Table, Values

_ROWS_PER_PAGE = 5_000  # rows held in memory at once
_BITS = 128


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of a table's rows and the sum of their hashes modulo 2^128.

    A sum does not depend on the order of rows, and can be updated for changed rows alone.
    """

    rows: int
    sum: int

    def updated(self, before: Sequence[Values], after: Sequence[Values]) -> Checksum:
        """Return the checksum after the rows `before` were replaced by the rows `after`."""
        total = self.sum - _sum(before) + _sum(after)
        return Checksum(self.rows - len(before) + len(after), total % (1 << _BITS))


def checksums(connection: Connection, tables: Sequence[Table]) -> dict[str, Checksum]:
    """Compute the checksums of tables, by table name; every row is read."""
    return {table.name: _checksum(connection, table) for table in tables}


def stored(connection: Connection) -> dict[str, Checksum]:
    """Return the checksums stored in a database, by table name; {} if there are none."""
    if not has_table(connection, CHECKSUMS):
        return {}
    rows = connection.execute(f"SELECT name, row_count, sum FROM {CHECKSUMS}")
    return {row[0]: Checksum(row[1], int(row[2])) for row in rows}


def store(connection: Connection, found: Mapping[str, Checksum]) -> None:
    """Store checksums by table name, replacing all that were stored."""
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {CHECKSUMS}"
        " (name TEXT PRIMARY KEY, row_count BIGINT NOT NULL, sum TEXT NOT NULL)"
    )
    connection.execute(f"DELETE FROM {CHECKSUMS}")
    connection.executemany(
        f"INSERT INTO {CHECKSUMS} VALUES (?, ?, ?)",
        [[name, checksum.rows, str(checksum.sum)] for name, checksum in found.items()],
    )


def _checksum(connection: Connection, table: Table) -> Checksum:
    result = Checksum(0, 0)
    # A table without a key has a row or two, and cannot be paged.
    page = table.page(connection, None, _ROWS_PER_PAGE)
    while page:
        result = result.updated((), page)
        page = table.page(connection, table.key_of(page[-1]), _ROWS_PER_PAGE) if table.key else []
    return result


def _sum(rows: Iterable[Values]) -> int:
    size = _BITS // 8
    return sum(
        int.from_bytes(blake2b(repr(row).encode(), digest_size=size).digest()) for row in rows
    )
