"""What is logged while PostgreSQL is away: each outage once, in our words."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.db.errors import Unavailable
from tests.kit.patience import PATIENCE
from tests.kit.postgres import PostgresServer, postgres_server

OUTAGES = 2


async def test_an_outage_is_logged_once_and_its_end_too(capfd: pytest.CaptureFixture[str]) -> None:
    with capture_logs() as log, postgres_server(durable=False) as server:
        address = PostgresSchema(server.create("away"), "irc")
        async with asyncio.timeout(PATIENCE), Database.open(address, patience=1) as database:
            for _ in range(OUTAGES):
                await _stop_and_start(server, database)
    told = [entry["event"] for entry in log if entry["event"].startswith("postgres.")]
    assert told == ["postgres.away", "postgres.back"] * OUTAGES
    assert "connect" not in capfd.readouterr().err


async def _stop_and_start(server: PostgresServer, database: Database) -> None:
    await database.fetch_all("SELECT 1")
    await database.write(lambda db: db.execute("SELECT 1"))
    await asyncio.to_thread(server.stop)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await database.fetch_all("SELECT 1")
        with pytest.raises(Unavailable):
            await database.read(lambda db: db.execute("SELECT 1").fetchall())
    await asyncio.to_thread(server.start)
    while True:
        try:
            await database.read(lambda db: db.execute("SELECT 1").fetchall())
            await database.fetch_all("SELECT 1")
        except Unavailable:
            continue
        return
