"""The order of what is stored is that of time, however late a line comes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from storage.chat_log.event import PUBLIC, Event
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from tests.kit.lines import LAKE, NOON, said


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
