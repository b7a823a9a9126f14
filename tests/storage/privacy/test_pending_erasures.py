"""One process at a time carries out erasures, wherever it runs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.privacy.pending_erasures import erasure_lock
from tests.kit.postgres import PostgresStores
from tests.kit.stores import Stores


async def test_a_process_waits_while_another_carries_out_erasures(
    stores: Stores, tmp_path: Path
) -> None:
    # On PostgreSQL the other process may be on another machine, with a folder of its own.
    here = there = tmp_path
    if not isinstance(stores.place, Path):
        there = tmp_path / "elsewhere"
    async with Database.open(stores("irc")) as one, Database.open(stores("irc")) as other:
        async with erasure_lock(one, here):
            with pytest.raises(Unavailable, match="another process"):
                async with erasure_lock(other, there, patience=0.3):
                    pass
        async with erasure_lock(other, there, patience=0.3):
            pass


async def test_a_server_that_ends_idle_sessions_does_not_end_the_lock(tmp_path: Path) -> None:
    schema = PostgresStores(tmp_path)("irc")
    with psycopg.connect(schema.url, autocommit=True) as admin:
        name = psycopg.sql.Identifier(admin.info.dbname)
        limit = psycopg.sql.SQL("ALTER DATABASE {} SET idle_session_timeout = 500")
        admin.execute(limit.format(name))
    async with (
        Database.open(schema) as one,
        Database.open(schema) as other,
        erasure_lock(one, tmp_path),
    ):
        await one.fetch_all("SELECT pg_sleep(0.8)")
        with pytest.raises(Unavailable, match="another process"):
            async with erasure_lock(other, tmp_path, patience=0.2):
                pass
