"""Where a test keeps its stores: it runs once on SQLite and once on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from storage.db.address import Address, PostgresSchema
from tests.kit.postgres import PostgresStores


class Stores(Protocol):
    """Addresses by name, which are beside one another; `place` is the folder, or a schema of the
    database."""

    @property
    def place(self) -> Path | PostgresSchema:
        """Where they are."""

    def __call__(self, name: str) -> Address:
        """Return the address of the store called `name`."""

    def raw(self) -> bytes:
        """Return all bytes of the files that hold tables and their indexes."""


class SqliteStores:
    """Addresses of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = self.place = folder

    def __call__(self, name: str) -> Path:
        """Return the file called `name`."""
        return self._folder / f"{name}.db"

    def raw(self) -> bytes:
        """Return all bytes of the files, write-ahead logs among them."""
        return b"".join(
            path.read_bytes() for path in sorted(self._folder.iterdir()) if path.is_file()
        )


@pytest.fixture(params=[SqliteStores, PostgresStores], ids=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Addresses in either kind of database."""
    made: Stores = request.param(tmp_path)
    return made
