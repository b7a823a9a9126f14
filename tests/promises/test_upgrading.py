"""What docs/upgrading.md promises of files from other versions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from sqlite3 import connect

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
