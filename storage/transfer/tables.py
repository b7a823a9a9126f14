"""The tables that a transfer moves, as described by PostgreSQL's catalogue.

SQLite's tables have the same names and columns, so one description serves both. The index and the
identity_columns, which are derived from the events, are not moved but rebuilt in the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from storage.connection import Connection
from storage.db.database import Database
from storage.log_index import DERIVED_TABLES

Values = tuple[Any, ...]
"""The values of a row, or of its primary key."""

EVENTS = "events"
CHANGES, STATE, CHECKSUMS = "transfer_changes", "transfer_state", "transfer_checksums"
"""Tables of the transfer itself: in the source the recorded changes, in the target the progress of
copying and the checksums of what was copied."""

_NOT_MOVED = DERIVED_TABLES | {CHANGES, STATE, CHECKSUMS, "schema_version", "writers"}
_INDEX = re.compile(r"words_\d+")
_COLUMNS = """
SELECT table_name, column_name, is_identity FROM information_schema.columns
WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position"""
_KEYS = """
SELECT c.relname, a.attname
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid
CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS u (number, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.number
WHERE k.contype = 'p' AND c.relnamespace = current_schema()::regnamespace
ORDER BY c.relname, u.place"""
_PARENTS = """
SELECT c.relname, p.relname
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid
WHERE k.contype = 'f' AND c.relnamespace = current_schema()::regnamespace"""
_KEYS_PER_STATEMENT = 200  # rows that one statement fetches by key, which bounds its placeholders


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, those of its primary key, and its identity column, if any.

    A table without a key has a row or two; it is not tracked by triggers but replaced whole.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    identity_column: str | None

    def key_of(self, row: Values) -> Values:
        """Return the primary key of a row."""
        return tuple(row[self.columns.index(column)] for column in self.key)

    def page(self, connection: Connection, after: Values | None, limit: int) -> list[Values]:
        """Return the next `limit` rows in the order of the key, after the key `after`; the first
        rows if that is None."""
        # Keyset pagination: unlike OFFSET it is not confused by rows that come or go meanwhile.
        where = f"WHERE ({_names(self.key)}) > ({_places(self.key)})" if after else ""
        order = f"ORDER BY {_names(self.key)}" if self.key else ""
        rows = connection.execute(
            f"SELECT {_names(self.columns)} FROM {self.name} {where} {order} LIMIT ?",
            [*(after or ()), limit],
        )
        return [_storable(tuple(row)) for row in rows]

    def rows(self, connection: Connection, keys: Sequence[Values]) -> list[Values]:
        """Return the rows that have any of these keys."""
        found = []
        for start in range(0, len(keys), _KEYS_PER_STATEMENT):
            few = keys[start : start + _KEYS_PER_STATEMENT]
            cursor = connection.execute(
                f"SELECT {_names(self.columns)} FROM {self.name}"
                f" WHERE {' OR '.join([self._is_key()] * len(few))}",
                [value for key in few for value in key],
            )
            found += [_storable(tuple(row)) for row in cursor]
        return found

    def insert(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Insert rows whose keys do not exist yet."""
        connection.insert_rows(f"{self.name} ({_names(self.columns)})", rows)

    def put(self, connection: Connection, rows: Iterable[Values]) -> None:
        """Insert rows, replacing those with the same keys (upsert)."""
        others = [column for column in self.columns if column not in self.key]
        changes = ", ".join(f'"{column}" = excluded."{column}"' for column in others)
        conflict = f"ON CONFLICT ({_names(self.key)}) DO UPDATE SET {changes}"
        if not others:
            conflict = "ON CONFLICT DO NOTHING"
        connection.executemany(
            f"INSERT INTO {self.name} ({_names(self.columns)}) VALUES ({_places(self.columns)})"
            f" {conflict if self.key else ''}",
            list(rows),
        )

    def delete(self, connection: Connection, keys: Iterable[Values]) -> None:
        """Delete the rows that have these keys."""
        connection.executemany(f"DELETE FROM {self.name} WHERE {self._is_key()}", list(keys))

    def count(self, connection: Connection) -> int:
        """Count all rows."""
        return int(connection.execute(f"SELECT count(*) FROM {self.name}").fetchone()[0])

    def _is_key(self) -> str:
        return "(" + " AND ".join(f'"{column}" = ?' for column in self.key) + ")"


async def tables(postgres: Database) -> list[Table]:
    """Return the tables of a tendril's schema, each after those that its foreign keys refer to."""
    columns: dict[str, list[str]] = {}
    identity_columns: dict[str, str] = {}
    for name, column, is_identity in await postgres.fetch_all(_COLUMNS):
        if name not in _NOT_MOVED and not _INDEX.fullmatch(name):
            columns.setdefault(name, []).append(column)
            if is_identity == "YES":
                identity_columns[name] = column
    keys: dict[str, list[str]] = {}
    for name, column in await postgres.fetch_all(_KEYS):
        keys.setdefault(name, []).append(column)
    order: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(columns, ()))
    for child, parent in await postgres.fetch_all(_PARENTS):
        order.add(child, parent)
    return [
        Table(name, tuple(columns[name]), tuple(keys.get(name, ())), identity_columns.get(name))
        for name in order.static_order()
    ]


def _storable(row: Values) -> Values:
    """Return a row with NUL in texts replaced, as PostgreSQL cannot store it: rows of the source
    then compare equal to those of the target."""
    if any(isinstance(value, str) and "\0" in value for value in row):
        return tuple(
            value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
            for value in row
        )
    return row


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _places(columns: Sequence[str]) -> str:
    return ", ".join("?" for _ in columns)
