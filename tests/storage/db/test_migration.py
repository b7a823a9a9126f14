"""A file of the first version comes through to the newest tables with all that was in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import storage
from storage.chat_log.event import PUBLIC, Place, Scope
from storage.db.database import Database, to_micros
from storage.log import ChatLog, Query
from storage.memory.conversations import Conversations, PromptWindow
from storage.search.models import SearchQuery

FIRST = Path(storage.__file__).parent / "migrations" / "0001_initial.sql"
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
POND = Place("irc", "#pond")
EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'u', 'h', NULL, '', ?, NULL, ?, ?)"


def micros(minute: float) -> int:
    return to_micros(NOON + timedelta(minutes=minute))


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file as the first version wrote it."""
    path = tmp_path / "irc.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(FIRST.read_text(encoding="utf-8"))
        file.execute("PRAGMA user_version = 1")
        file.executemany(
            "INSERT INTO channels VALUES (?, 'irc', ?, ?)", [(1, "#pond", 0), (2, "eve", 1)]
        )
        file.executemany(
            EVENT,
            [
                (1, 1, "JOIN", micros(0), "ada", "", 0, None),
                (2, 1, "PRIVMSG", micros(1), "ada", "are frogs awake?", 0, None),
                (3, 1, "PRIVMSG", micros(0.5), "Terra", "some frogs are", 1, 2),  # came late
                (5, 2, "PRIVMSG", micros(2), "eve", "secret frogs", 0, None),
                (6, 1, "PRIVMSG", micros(2), "Ada", "thanks", 0, None),
            ],
        )
        file.execute("INSERT INTO conversations VALUES (1, 'irc/#pond', 2, 1)")
        file.executemany("INSERT INTO turns VALUES (?, 1, ?, 0, '[]')", [(1, 2), (2, 0), (3, 4)])
        file.commit()
    return path


async def test_events_keep_their_order_and_get_ids_that_follow_time(old_file: Path) -> None:
    async with Database.open(old_file) as database:
        events = await ChatLog(database).find(Query(scope=Scope.from_places(POND)))
    assert events[0].type == "JOIN"
    assert [event.text for event in events][1:] == ["are frogs awake?", "some frogs are", "thanks"]
    assert events[2].reply_to == events[1].id
    for event in events:
        assert 0 <= event.id - to_micros(event.time) // 1000 <= 31_000


async def test_what_is_in_an_old_file_is_found_and_counted(old_file: Path) -> None:
    async with Database.open(old_file) as database:
        log = ChatLog(database)
        found = await log.search(SearchQuery(text="frogs", within=Query(scope=PUBLIC)))
        parts = await log.search(SearchQuery(text="*rog*", within=Query(scope=PUBLIC)))
        timed = await log.search(
            SearchQuery(text="some until:2026-05-01T12:01", within=Query(scope=PUBLIC))
        )
        stats = await log.stats(Query(scope=PUBLIC))
        channels = await log.channels(PUBLIC)
    assert (found.count, parts.count, timed.count) == (2, 2, 1)
    assert (stats.lines, stats.people, stats.replies) == (3, 2, 1)
    assert [(nick.lower(), lines) for nick, lines in stats.top] == [("ada", 2), ("terra", 1)]
    assert [(channel.place, channel.events) for channel in channels] == [(POND, 4)]


async def test_turns_and_windows_point_at_the_same_events_as_before(old_file: Path) -> None:
    async with Database.open(old_file) as database:
        question = (await ChatLog(database).find(Query(scope=Scope.from_places(POND))))[1]
        turns = await Conversations(database).turns("irc/#pond")
        window = await Conversations(database).window("irc/#pond")
    assert [turn.question_event_id for turn in turns] == [question.id, 0, 0]
    assert window == PromptWindow(log_start=question.id, turn_start=1)


async def test_what_is_said_after_the_change_follows_what_was_said_before(old_file: Path) -> None:
    async with Database.open(old_file) as database, ChatLog.open(database) as log:
        (last,) = await log.find(Query(scope=PUBLIC, limit=1))
        assert await log.append(last) > last.id
