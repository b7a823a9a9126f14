"""A COMMIT whose answer never comes: the database is asked what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest

from storage.chat_log.event import EVERYTHING
from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import ChatLog, Query
from storage.usage.usage import UsageAmount, UsageKey, UsageTable
from tests.kit.lines import said
from tests.kit.patience import PATIENCE
from tests.kit.postgres import PostgresServer, postgres_server

LINE = said()
_DEFERRED = """
CREATE FUNCTION terrarium_irc.wait() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(600); RETURN NULL; END'"""
_AT_COMMIT = """
CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON terrarium_irc.events DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION terrarium_irc.wait()"""
_WAITING = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event IN ('SyncRep', 'PgSleep')"""
_SLEEPING = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server(durable=False) as server:
        yield server


@contextmanager
def admin(address: PostgresSchema) -> Iterator[psycopg.Connection]:
    with psycopg.connect(address.url, autocommit=True) as connection:
        yield connection


def never_answer_commits(address: PostgresSchema) -> None:
    """Have each commit wait, once made, for a copy that never comes."""
    with admin(address) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")


async def lose_the_answer(address: PostgresSchema) -> None:
    """End the connection that waits in its COMMIT."""

    def end() -> bool:
        with admin(address) as connection:
            return bool(connection.execute(_WAITING.encode()).fetchall())

    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(end):  # noqa: ASYNC110 -- it has no event for us
            await asyncio.sleep(0.05)


async def test_a_commit_that_was_made_is_not_made_again(server: PostgresServer) -> None:
    address = PostgresSchema(server.create("lost"), "irc")
    async with Database.open(address) as database, asyncio.timeout(PATIENCE):
        never_answer_commits(address)
        writing = asyncio.create_task(ChatLog(database).add([LINE]))
        await lose_the_answer(address)
        (event_id,) = await writing
        found = await ChatLog(database).find(Query(scope=EVERYTHING))
        assert [event.id for event in found] == [event_id]
        spent = {UsageKey(LINE.time.date(), "irc", "terra"): UsageAmount(1, 20, 0, 3)}
        counting = asyncio.create_task(UsageTable(database).add(spent))
        await lose_the_answer(address)
        await counting  # else whoever counts usage would add it once more
        rows = await database.fetch_all("SELECT requests FROM usage")
        assert [row[0] for row in rows] == [1]


async def test_a_commit_that_was_not_made_is_an_error(server: PostgresServer) -> None:
    address = PostgresSchema(server.create("lost"), "irc")
    async with Database.open(address) as database, asyncio.timeout(PATIENCE):
        with admin(address) as connection:
            connection.execute(_DEFERRED.encode())
            connection.execute(_AT_COMMIT.encode())
        writing = asyncio.create_task(ChatLog(database).add([LINE]))
        await lose_the_answer(address)
        with pytest.raises(Unavailable, match="cannot be written"):
            await writing
        assert await ChatLog(database).find(Query(scope=EVERYTHING)) == []


async def test_a_commit_that_a_crash_undid_is_an_error_at_once(server: PostgresServer) -> None:
    async with crashed_in_commit(server) as writing:
        server.start()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable, match="cannot be written"):
                await writing


async def test_a_commit_that_a_crash_undid_is_not_taken_for_anothers_of_the_same_number(
    server: PostgresServer,
) -> None:
    # The crash has lost that a number was given to our transaction: another one is given it again.
    async with crashed_in_commit(server) as writing:
        server.start(hidden=True)
        with psycopg.connect(server.hidden_url("lost"), autocommit=True) as connection:
            for _ in range(100):
                connection.execute("CREATE TABLE other (); DROP TABLE other")
        server.stop()
        server.start()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Unavailable, match="cannot be written"):
                await writing


@asynccontextmanager
async def crashed_in_commit(server: PostgresServer) -> AsyncIterator[asyncio.Task[Sequence[int]]]:
    """Crash the server while it commits a line, before anything of that has reached its disk."""
    address = PostgresSchema(server.create("lost"), "irc")
    async with Database.open(address) as database:
        with admin(address) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("ALTER SYSTEM SET wal_writer_flush_after = '1GB'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(_DEFERRED.encode())
            connection.execute(_AT_COMMIT.encode())
            connection.execute("CHECKPOINT")
        writing = asyncio.create_task(ChatLog(database).add([LINE]))
        with admin(address) as connection:
            async with asyncio.timeout(PATIENCE):
                while not connection.execute(_SLEEPING.encode()).fetchone():  # noqa: ASYNC110 -- no event
                    await asyncio.sleep(0.05)
        server.kill()
        yield writing
