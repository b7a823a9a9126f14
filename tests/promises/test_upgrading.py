"""What docs/upgrading.md promises of files from other versions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from sqlite3 import OperationalError, connect

import pytest

from storage.db.database import Database
from storage.db.errors import StorageError


async def test_a_file_of_a_newer_version_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    async with Database.open(path):
        pass
    with closing(connect(path)) as file:
        file.execute("PRAGMA user_version = 9999")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(StorageError, match="newer Terrarium"):
        async with Database.open(path):
            pass
    assert path.read_bytes() == before


async def test_a_migration_that_is_interrupted_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "irc.db"
    async with Database.open(path):
        pass
    with closing(connect(path)) as file:
        (newest,) = file.execute("PRAGMA user_version").fetchone()
        # As if the last migrations were still to come, of which one finds what it would make.
        file.execute("PRAGMA user_version = 15")
        tables = file.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    with pytest.raises((StorageError, OperationalError)):
        async with Database.open(path):
            pass
    with closing(connect(path)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (15,) != (newest,)
        assert file.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall() == tables
