"""The choice of the index by the kind of database."""

from __future__ import annotations

from storage.connection import Connection, Dialect
from storage.text_index.fts5 import Fts5Index
from storage.text_index.model import TextIndex
from storage.text_index.tsvector import TsvectorIndex

_INDEXES: dict[Dialect, TextIndex] = {
    Dialect.SQLITE: Fts5Index(),
    Dialect.POSTGRES: TsvectorIndex(),
}


def text_index(connection: Connection) -> TextIndex:
    """Return the index in the database of a connection."""
    return _INDEXES[connection.dialect]
