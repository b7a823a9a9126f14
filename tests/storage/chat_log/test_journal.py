"""The journal: what a dead process has heard is stored, once, unless it must not be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from storage.chat_log.event import PUBLIC, EventType
from storage.chat_log.journal import Journal
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.privacy.erasure import NamedPerson, forget
from tests.kit.lines import said


def left_by_a_dead_process(data: Path, *texts: str) -> None:
    with Journal(data, "irc").hold() as journal:
        for text in texts:
            journal.add(said(text))


async def recovered(data: Path, database: Database) -> list[str]:
    with Journal(data, "irc").hold() as journal:
        async with ChatLog.open(database, journal) as log:
            await log.recover(lambda event: "secret" not in event.text)
    found = await ChatLog(database).find(Query(scope=PUBLIC))
    return [event.text for event in found]


async def test_what_is_missing_in_the_log_is_stored_and_the_journal_is_gone(
    database: Database, tmp_path: Path
) -> None:
    async with ChatLog.open(database) as log:
        log.append(said("one"))
    left_by_a_dead_process(tmp_path, "one", "two", "secret", "naïve\ttext")
    assert await recovered(tmp_path, database) == ["one", "two", "naïve\ttext"]
    assert await recovered(tmp_path, database) == ["one", "two", "naïve\ttext"]
    assert not list((tmp_path / "run").iterdir())


async def test_the_journal_of_a_living_process_or_another_tendril_is_left_alone(
    database: Database, tmp_path: Path
) -> None:
    left_by_a_dead_process(tmp_path, "one")
    with Journal(tmp_path, "irc").hold() as journal, Journal(tmp_path, "web").hold() as other:
        journal.add(said("two"))
        other.add(said("three"))
        assert await recovered(tmp_path, database) == ["one"]


async def test_a_half_written_line_costs_no_other(database: Database, tmp_path: Path) -> None:
    left_by_a_dead_process(tmp_path, "one", "two")
    (path,) = (tmp_path / "run").glob("irc-*.journal")
    path.write_bytes(path.read_bytes()[:-20])
    assert await recovered(tmp_path, database) == ["one"]


async def test_events_of_a_stored_batch_are_removed_at_once(
    database: Database, tmp_path: Path
) -> None:
    with Journal(tmp_path, "irc").hold() as journal:
        async with ChatLog.open(database, journal) as log:
            await log.append(said("one"))
            (path,) = (tmp_path / "run").glob("irc-*.journal")
            assert path.read_bytes() == b""


async def test_whoever_is_forgotten_does_not_come_back_from_a_journal(
    database: Database, tmp_path: Path
) -> None:
    with Journal(tmp_path, "irc").hold() as journal:
        journal.add(said("one"))
        journal.add(replace(said("two"), nick="Bob", type=EventType.ACTION))
    await forget(ChatLog(database), NamedPerson(None, "bob"), tmp_path)
    (path,) = (tmp_path / "run").glob("irc-*.journal")
    assert b"Bob" not in path.read_bytes()
    assert await recovered(tmp_path, database) == ["one"]
