"""Checksums of tables, the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from storage.connection import Connection
from storage.transfer.tables import Table

_PAGE = 5_000  # rows in memory at once
_BITS = 128


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of a table's rows, and the sum of their hashes, which no order changes."""

    rows: int
    sum: int


def checksums(connection: Connection, tables: Sequence[Table]) -> dict[str, Checksum]:
    """Return the checksums of tables by name; every row is read."""
    return {table.name: _checksum(connection, table) for table in tables}


def _checksum(connection: Connection, table: Table) -> Checksum:
    count = total = 0
    page = table.page(connection, None, _PAGE)
    while page:
        count += len(page)
        for row in page:
            total += int.from_bytes(blake2b(repr(row).encode(), digest_size=_BITS // 8).digest())
        page = table.page(connection, table.key_of(page[-1]), _PAGE) if table.key else []
    return Checksum(count, total % (1 << _BITS))
