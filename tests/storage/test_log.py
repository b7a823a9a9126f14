"""The chat log: stored in order, found again, and never shown to whom it is not for."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from storage.chat_log import statistics
from storage.chat_log.event import PUBLIC, SPOKEN, Event, EventType, Place, Scope
from storage.connection import Connection, Dialect
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.log import MAX_QUEUED_EVENTS, ChatLog, Query
from tests.kit.lines import LAKE, NOON, POND, said
from tests.kit.patience import PATIENCE
from tests.kit.stores import Stores, locked

HERE = Scope.from_places(POND)


async def store(log: ChatLog, *events: Event) -> list[int]:
    return list(await asyncio.gather(*(log.append(event) for event in events)))


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events]


async def test_an_event_comes_back_as_it_went_in(log: ChatLog) -> None:
    who: dict[str, Any] = {"nick": "Ålice", "user": "~a", "host": "host.example"}
    more: dict[str, Any] = {"account": "alice", "target": "mallory", "msgid": "abc", "reply_to": 7}
    time, place = NOON + timedelta(microseconds=123456), Place("libera", "#Terrarium")
    event = said("out \x02bold\x02 \U0001f331", place=place, time=time, own=True, **who, **more)
    (event_id,) = await store(log, replace(event, type=EventType.KICK))
    assert await log.get(PUBLIC, event_id) == replace(event, type=EventType.KICK, id=event_id)


async def test_leaving_the_log_waits_until_everything_is_stored_in_the_order_of_appending(
    database: Database,
) -> None:
    async with ChatLog.open(database) as log:
        stored = [log.append(said(str(number))) for number in range(1_200)]
    ids = [await each for each in stored]
    assert ids == list(range(ids[0], ids[0] + 1_200))
    log = ChatLog(database)
    found = await log.find(Query(scope=HERE, limit=2_000))
    assert texts(found) == [str(number) for number in range(1_200)]
    assert texts(await log.find(Query(scope=HERE, limit=2))) == ["1198", "1199"]
    assert texts(await log.find(Query(scope=HERE, limit=2), newest=False)) == ["0", "1"]


async def test_every_field_of_a_query_narrows_it(log: ChatLog) -> None:
    ids = await store(
        log,
        said("first", minute=0),
        said("second", minute=1, nick="Bob"),
        replace(said("third", minute=2), own=True),
        replace(said("", minute=3), type=EventType.JOIN),
        said("elsewhere", place=Place("oftc", "#pond"), minute=4),
    )
    query = Query(scope=PUBLIC)
    minute = timedelta(minutes=1)

    async def found(query: Query) -> list[int]:
        return [ids.index(event.id) for event in await log.find(query)]

    assert await found(query) == [0, 1, 2, 3, 4]
    assert await found(replace(query, network="oftc")) == [4]
    assert await found(replace(query, channel="#POND", network="irc")) == [0, 1, 2, 3]
    assert await found(replace(query, nick="bob")) == [1]
    assert await found(replace(query, own=True)) == [2]
    assert await found(replace(query, types=SPOKEN)) == [0, 1, 2, 4]
    assert await found(replace(query, types=frozenset())) == []
    assert await found(replace(query, since=NOON + minute, until=NOON + 3 * minute)) == [1, 2]
    assert await found(replace(query, after_id=ids[0], before_id=ids[3])) == [1, 2]


async def test_a_scope_shows_its_own_places_only(log: ChatLog) -> None:
    elsewhere = said("there", place=Place("oftc", POND.channel))
    await store(log, said("at home"), said("away", place=LAKE), elsewhere)
    assert texts(await log.find(Query(scope=HERE))) == ["at home"]
    assert texts(await log.find(Query(scope=Scope.from_places(POND, LAKE)))) == ["at home", "away"]
    assert await log.find(Query(scope=Scope.from_places())) == []
    assert await log.find(Query(scope=HERE, channel="#lake")) == []


async def test_private_talk_is_seen_only_by_who_names_it(log: ChatLog) -> None:
    private = said("secret", place=Place("irc", "alice"))
    (event_id,) = await store(log, private)
    assert await log.find(Query(scope=PUBLIC)) == []
    assert await log.get(PUBLIC, event_id) is None
    assert await log.read(statistics.channels, PUBLIC) == []
    assert (await log.read(statistics.stats, Query(scope=PUBLIC))).lines == 0
    theirs = await log.find(Query(scope=Scope.from_places(Place("irc", "alice"))))
    assert texts(theirs) == ["secret"]


async def test_channels_are_listed_by_their_last_activity(log: ChatLog) -> None:
    await store(log, said("old"), said("new", place=LAKE, minute=9))
    listed = await log.read(statistics.channels, PUBLIC)
    assert [(channel.place, channel.events) for channel in listed] == [(LAKE, 1), (POND, 1)]
    assert listed[0].last_time == NOON + timedelta(minutes=9)


async def test_a_line_waits_until_another_process_has_written_and_a_reader_does_not(
    log: ChatLog, stores: Stores
) -> None:
    async with Database.open(stores("irc")) as other:
        await store(log, said("before"))
        async with other.exclusive():
            stored = log.append(said("patient"))
            assert texts(await log.find(Query(scope=HERE))) == ["before"]
            assert not stored.done()
        event_id = await stored
        assert await log.get(HERE, event_id) is not None


async def test_an_answer_knows_its_question_that_is_put_in_line_just_before(log: ChatLog) -> None:
    for _ in range(3):
        question = log.write(said("why?"))
        answer = log.write(replace(said("so", nick="Terra"), own=True), question)
        after = log.write(said("ah"))
        ids = [await pending.wait_visible() for pending in (answer, question, after)]
        found = await log.get(PUBLIC, ids[0])
        assert found is not None
        assert found.reply_to == ids[1] < ids[0] < ids[2]


async def test_what_keeps_nothing_is_behind_all_that_was_said_and_has_no_answer(
    log: ChatLog,
) -> None:
    for number in range(20):
        log.write(said(str(number)))
    question = log.write(None)
    answer = log.write(replace(said("so", nick="Terra"), own=True), question)
    assert await question.wait_visible() == 0
    assert len(await log.find(Query(scope=HERE))) >= 20
    found = await log.get(PUBLIC, await answer.wait_visible())
    assert found is not None
    assert found.reply_to is None


async def test_what_was_said_before_a_line_is_known_before_the_line_is_written(
    log: ChatLog,
) -> None:
    first = log.write(said("first"))
    assert await first.boundary_id() == first.id
    unlogged, second = log.write(None), log.write(said("second"))
    assert await unlogged.boundary_id() == first.id + 1
    assert await second.boundary_id() == first.id + 1
    third = log.write(said("third"))
    assert await third.boundary_id() == second.id + 1
    assert not third.is_settled
    assert await third.wait_visible() > second.id
    assert await third.boundary_id() == third.id


async def test_what_is_written_is_read_by_others_and_what_is_settled_is_on_the_disk(
    tmp_path: Path,
) -> None:
    path = tmp_path / "irc.db"
    async with Database.open(path) as database, ChatLog.open(database) as log:
        with closing(sqlite3.connect(path)) as other:
            pending_event = log.write(said("hello"))
            event_id = await pending_event.wait_visible()
            assert other.execute("SELECT id, text FROM events").fetchall() == [(event_id, "hello")]
            assert await pending_event.durable == event_id
            await log.flush()


async def test_who_no_longer_waits_for_a_line_does_not_keep_it_from_the_log(log: ChatLog) -> None:
    pending_event = log.write(said("hello"))
    waiting = asyncio.create_task(pending_event.wait_visible())
    await asyncio.sleep(0)
    waiting.cancel()
    log.append(said("again")).cancel()
    await log.flush()
    assert pending_event.id
    assert texts(await log.find(Query(scope=HERE))) == ["hello", "again"]


async def test_half_a_character_in_any_field_keeps_no_line_from_the_log(log: ChatLog) -> None:
    fields = "network", "channel", "nick", "user", "host", "account", "target", "msgid", "text"
    odd: list[dict[str, Any]] = [{field: "#a\ud800\udfffé"} for field in fields]
    lines = [line for each in odd for line in (said("before"), said(**each), said("after"))]
    for times in (1, 2):  # a name that was changed is known the second time
        ids = await store(log, *lines)
        found = {event.id: event for event in await log.find(Query(scope=PUBLIC, limit=99))}
        assert len(found) == times * len(lines)
        for field, event_id in zip(fields, ids[1::3], strict=True):
            assert getattr(found[event_id], field) == "#a??é"
    assert len(await log.read(statistics.channels, PUBLIC)) == 3


async def test_while_nothing_can_be_written_nobody_waits_and_only_so_many_lines_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "busy.db"
    async with Database.open(path, patience=0.05) as database, ChatLog.open(database) as log:
        with locked(path):
            waiting = [log.write(said(str(number))) for number in range(MAX_QUEUED_EVENTS)]
            assert await waiting[0].wait_visible() == 0  # not yet
            assert await waiting[-1].boundary_id() == 0
            assert "database is locked" in log.trouble
            with pytest.raises(Unavailable):
                await log.flush()
            extra = [log.write(said("too many")) for _ in range(3000)]
            assert extra[-1].durable.cancelled()
            assert await extra[-1].wait_visible() == 0
            assert "lines wait in memory, " in log.trouble
        async with asyncio.timeout(PATIENCE):
            await waiting[-1].durable
        assert log.trouble == ""
        found = await log.find(Query(scope=HERE, limit=2 * MAX_QUEUED_EVENTS), newest=False)
    stored = [event.text for event in found if event.text != "too many"]
    assert stored == list(map(str, range(MAX_QUEUED_EVENTS)))


@contextmanager
def failing_fsync(path: Path) -> Iterator[None]:
    """Make every fsync of a store's write-ahead log fail, while those who have it open write on."""
    wal, aside = Path(f"{path}-wal"), Path(f"{path}-aside")
    wal.rename(aside)
    wal.symlink_to("/dev/null")  # which cannot be fsynced
    try:
        yield
    finally:
        aside.replace(wal)


async def test_what_an_fsync_failed_for_counts_as_waiting_is_never_dropped_and_written_again(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "irc.db", tmp_path / "copy.db"
    with capture_logs() as logs:
        async with Database.open(path) as database, ChatLog.open(database) as log:
            await store(log, said("before"))
            with failing_fsync(path):
                assert await log.write(said("first")).wait_visible()
                with pytest.raises(Unavailable):
                    await log.flush()
                assert "1 lines wait in memory" in log.trouble
                lines = [log.write(said(str(number))) for number in range(MAX_QUEUED_EVENTS)]
                async with asyncio.timeout(PATIENCE):
                    while not all(line.is_settled for line in lines):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                assert all(line.id for line in lines)
            async with asyncio.timeout(PATIENCE):
                await lines[-1].durable
            assert log.trouble == ""
            shutil.copy(path, copy)  # without the log, which the failed fsync was for
    assert [each["event"] for each in logs] == ["log.write_failed", "log.written_again"]
    with closing(sqlite3.connect(copy)) as file:
        rows = file.execute("SELECT text FROM events").fetchall()
    assert [row[0] for row in rows] == ["before", "first", *map(str, range(MAX_QUEUED_EVENTS))]


@pytest.mark.parametrize("patience", [0.05, 5.0])
async def test_a_file_that_stays_locked_does_not_hold_up_the_end_and_lost_lines_are_counted(
    tmp_path: Path, patience: float
) -> None:
    path = tmp_path / "irc.db"
    with capture_logs() as logs:
        async with Database.open(path, patience=patience) as database, asyncio.timeout(PATIENCE):
            with locked(path):
                async with ChatLog.open(database) as log:
                    lines = [log.append(said(str(number))) for number in range(3)]
                assert not any(line.done() for line in lines)
    assert [each["lines"] for each in logs if each["event"] == "log.lines_lost"] == [3]


async def test_a_line_that_the_database_rejects_keeps_no_other_from_the_log(
    database: Database,
) -> None:
    await database.write(reject_odd_lines)
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE), ChatLog.open(database) as log:
            waiting = [log.append(said(text)) for text in ("one", "odd", "two", "three")]
            await asyncio.wait(waiting)
            answer = log.write(replace(said("so"), own=True))
            assert await answer.durable
            assert [future.cancelled() for future in waiting] == [False, True, False, False]
            assert texts(await log.find(Query(scope=HERE))) == ["one", "two", "three", "so"]
            assert log.trouble == ""
    (rejected,) = logs
    assert rejected["event"] == "log.line_rejected"
    assert "odd" not in rejected["error"]


def reject_odd_lines(connection: Connection) -> None:
    if connection.dialect is Dialect.POSTGRES:
        connection.execute("ALTER TABLE events ADD CHECK (text <> 'odd')")
    else:
        connection.execute(
            "CREATE TRIGGER reject BEFORE INSERT ON events WHEN new.text = 'odd'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
