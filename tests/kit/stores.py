"""Stores of a test, which runs once on SQLite and once on PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from storage.db.address import Address, PostgresSchema
from tests.kit.postgres import PostgresStores


class Stores(Protocol):
    """Factory of addresses of stores in one folder or database."""

    @property
    def place(self) -> Path | PostgresSchema:
        """The folder, or one schema of the database."""

    def __call__(self, name: str) -> Address:
        """Return the address of the store called `name`."""

    def raw(self) -> bytes:
        """Return all bytes of the files with tables and indexes."""


class SqliteStores:
    """Stores as SQLite files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = self.place = folder

    def __call__(self, name: str) -> Path:
        """Return the file called `name`."""
        return self._folder / f"{name}.db"

    def raw(self) -> bytes:
        """Return all bytes of the files, including write-ahead logs."""
        return b"".join(
            path.read_bytes() for path in sorted(self._folder.iterdir()) if path.is_file()
        )


@pytest.fixture(params=[SqliteStores, PostgresStores], ids=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Stores in each kind of database."""
    made: Stores = request.param(tmp_path)
    return made


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the write lock of a file inside the block, as another process may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
