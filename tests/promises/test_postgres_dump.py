"""A copy of a PostgreSQL database, made with the server's own tools."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

from storage.chat_log.event import EVERYTHING
from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, Turn
from storage.queues.jobs import Jobs
from storage.queues.outbox import Outbox
from storage.search.models import SearchQuery
from tests.kit.command import terrarium
from tests.kit.lines import NOON
from tests.kit.postgres import binaries, postgres_database
from tests.storage.test_transfer import PLACE, everything, fill, said

LINES = 300


def run(program: str, *arguments: str) -> None:
    """Run one of the server's programs as docs/postgres.md has it."""
    subprocess.run([str(binaries() / program), *arguments], check=True, stdin=subprocess.DEVNULL)


async def test_what_was_dumped_is_all_there_once_restored_and_goes_on(tmp_path: Path) -> None:
    url, again = postgres_database(), postgres_database()
    dump = str(tmp_path / "terrarium.dump")
    async with (
        Database.open(PostgresSchema(url, "irc")) as database,
        Database.open(PostgresSchema(url, "web")) as web,
    ):
        await fill(database, LINES)
        turn = Turn(0, NOON, ({"role": "user", "content": "hello"},))
        await Conversations(web).add("browser/1", turn)
        before = await everything(database)
        run("pg_dump", "--format=custom", f"--file={dump}", url)  # while it is in use
        claimed = await Jobs(database).claim("w", ["work"], NOON + timedelta(days=10_000))
        job = await Jobs(database).add("work", {"n": 2})
    run("pg_restore", "--exit-on-error", f"--dbname={again}", dump)
    restored = PostgresSchema(again, "irc")
    async with Database.open(restored) as database:
        assert await everything(database) == before
        log, jobs, outbox = ChatLog(database), Jobs(database), Outbox(database)
        ids = [event.id for event in await log.find(Query(scope=EVERYTHING, limit=LINES + 10))]
        (late,) = await log.add([said(LINES + 10, text="a late pond")])
        assert late not in ids
        query = SearchQuery(text="late pond", within=Query(scope=EVERYTHING))
        assert [hit.event.id for hit in (await log.search(query)).hits] == [late]
        assert await jobs.add("work", {"n": 2}) == job  # the number that was next at the dump
        assert await jobs.claim("w", ["work"], NOON + timedelta(days=10_000)) == claimed
        await outbox.put("late", PLACE, "A late frog.")
        assert [each.text for each in await outbox.list_unsent()] == ["A frog.", "A late frog."]
        await Conversations(database).add("irc/#frogs/bob", turn)
        assert len(await Conversations(database).turns("irc/#frogs/bob")) == 2
    async with Database.open(PostgresSchema(again, "web")) as web:
        (kept,) = await Conversations(web).turns("browser/1")
        assert kept.messages == turn.messages
    found = await terrarium("logs", "search", "late", cwd=tmp_path, STORAGE_URL=again)
    assert "a late pond" in found.out
