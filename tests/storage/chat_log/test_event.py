"""Events: as lines of text, in order of time, and private by the name of their place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.chat_log import statistics
from storage.chat_log.event import (
    PUBLIC,
    Event,
    EventType,
    Identity,
    describe_event,
    event_line,
    is_private,
)
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from tests.kit.lines import ADA, LAKE, NOON, POND, said


def of(type: EventType, text: str = "", target: str = "") -> Event:
    return said(text, type=type, target=target)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (of(EventType.PRIVMSG, "hello"), "<ada> hello"),
        (of(EventType.NOTICE, "hello"), "-ada- hello"),
        (of(EventType.ACTION, "waves"), "* ada waves"),
        (of(EventType.JOIN), "*** ada joined"),
        (of(EventType.PART), "*** ada left"),
        (of(EventType.PART, "bye"), "*** ada left (bye)"),
        (of(EventType.QUIT, "Ping timeout"), "*** ada quit (Ping timeout)"),
        (of(EventType.NICK, target="eve"), "*** ada is now known as eve"),
        (of(EventType.KICK, "spam", "bob"), "*** ada kicked bob (spam)"),
        (of(EventType.KICK, target="bob"), "*** ada kicked bob"),
        (of(EventType.MODE, "+o bob"), "*** ada set mode +o bob"),
        (of(EventType.TOPIC, "frogs"), "*** ada set the topic: frogs"),
        (of(EventType.TOPIC), "*** ada cleared the topic"),
    ],
)
def test_every_kind_of_event_is_one_line(event: Event, line: str) -> None:
    assert event_line(event) == line
    assert line.endswith(describe_event(event))


async def found(log: ChatLog, text: str) -> list[str]:
    """The texts that a search finds, the newest first."""
    page = await log.search(SearchQuery(text=text, within=Query(scope=PUBLIC), order=Order.TIME))
    return [hit.event.text for hit in page.hits]


def texts(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events]


async def test_history_that_is_imported_takes_its_place_in_time(log: ChatLog) -> None:
    await log.add([said(f"frogs {n}", minute=n) for n in (0, 60, 120)])
    await log.add([said(f"frogs {n}", minute=n, place=LAKE) for n in (-999, 30, 30, 61)])
    in_time = ["frogs -999", "frogs 0", "frogs 30", "frogs 30", "frogs 60", "frogs 61", "frogs 120"]
    assert texts(await log.find(Query(scope=PUBLIC))) == in_time
    assert await found(log, "frogs") == in_time[::-1]
    assert (
        await found(log, "frogs since:2026-05-01T12:30 until:2026-05-01T13:00") == in_time[3:1:-1]
    )


async def test_who_follows_the_log_misses_no_line_that_comes_late(log: ChatLog) -> None:
    (last,) = await log.add([said("now", minute=10)])
    await log.add([said("late", minute=6)])
    assert texts(await log.find(Query(scope=PUBLIC, after_id=last), newest=False)) == ["late"]
    assert await found(log, "late until:2026-05-01T12:07") == ["late"]


async def test_many_lines_of_one_moment_keep_their_order(log: ChatLog) -> None:
    await log.add([said("today", minute=60 * 24)])
    for start in range(0, 3_000, 1_000):
        await log.add([said(str(n)) for n in range(start, start + 1_000)])
    old = await log.find(Query(scope=PUBLIC, until=NOON + timedelta(minutes=1), limit=9_999))
    assert texts(old) == [str(n) for n in range(3_000)]


async def test_a_row_that_says_it_is_public_is_not_believed_without_the_sign(
    tmp_path: Path,
) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        log = ChatLog(database)
        await log.add([said("public"), said("secret", place=ADA)])
        await database.execute("UPDATE channels SET private = 0")
        assert [each.text for each in await log.find(Query(scope=PUBLIC))] == ["public"]
        assert [each.place for each in await log.read(statistics.channels, PUBLIC)] == [POND]
        assert (await log.read(statistics.stats, Query(scope=PUBLIC))).lines == 1
        found = await log.search(SearchQuery(text="secret", within=Query(scope=PUBLIC)))
        assert found.hits == ()


def test_a_word_to_operators_and_every_room_of_a_person_is_private() -> None:
    assert not any(map(is_private, ("#pond", "&local", "+open", "!ABCDEpond")))
    assert all(map(is_private, ("@#pond", "@+#pond", "vera", "~vera", "vera!v@h.example", "")))


@given(st.text(), st.text(), st.text(), st.none() | st.text())
def test_no_account_user_or_host_makes_a_private_room_public(
    nick: str, user: str, host: str, account: str | None
) -> None:
    # What no server gives away as a nick, and a nick is what the room of nobody else begins with.
    nick = nick.lstrip("#&+!") or "n"
    assert is_private(Identity(nick, user, host, account).room(str.lower))
