"""An outage of PostgreSQL: each is logged once, in our words, and its end is noticed at once."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from structlog.testing import capture_logs

from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.db.errors import Unavailable
from tests.kit.patience import PATIENCE
from tests.kit.postgres import PostgresServer, postgres_server

OUTAGES = 2
_ATTEMPTS = 8  # with pauses that double they would take minutes


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


@pytest.mark.server
async def test_the_return_of_the_server_is_noticed_without_long_pauses() -> None:
    with postgres_server(durable=False) as server:
        address = PostgresSchema(server.create("away"), "irc")
        socket, attempts = server.folder / ".s.PGSQL.5432", count(1)

        def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            if next(attempts) == _ATTEMPTS:  # now it is back
                socket.unlink()
                socket.symlink_to(server.folder / "data" / socket.name)

        async with asyncio.timeout(PATIENCE), Database.open(address, patience=10) as database:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start, hidden=True)
            socket.unlink(missing_ok=True)
            async with await asyncio.start_unix_server(refuse, socket):
                assert await database.fetch_one("SELECT 1")
