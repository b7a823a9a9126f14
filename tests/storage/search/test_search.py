"""The search over real files: it finds what it says, in order, page by page, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.chat_log.event import PUBLIC, EventType, Place, Scope
from storage.connection import Connection
from storage.db.database import Database
from storage.db.errors import BadCursor
from storage.log import ChatLog, Query
from storage.log_index import text_index
from storage.search.models import Order, SearchPage, SearchQuery
from storage.search.query_parser import Mode
from storage.search.scanner import LAST_ID
from storage.text_index.model import IdRange, IndexQuery, Phrase, WordMatch
from tests.kit.lines import ADA, LAKE, POND, said

EVERY_KIND = ["secret", "sec*", "*ecre*", "-nothing", "密", "密かな話", "from:eve", '"a secret"']
PIECES = ["frogs", "or", "not", "-a", '"', "a*", "*b*", "NEAR(", "tags:z", "c++", "^", "from:ada"]
few_files = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def asked(text: str, *, scope: Scope = PUBLIC, limit: int = 50, **more: Any) -> SearchQuery:
    return SearchQuery(text=text, within=Query(scope=scope, limit=limit), **more)


async def found(log: ChatLog, text: str, **more: Any) -> list[str]:
    """The texts that a search finds, the newest first."""
    page = await log.search(asked(text, order=Order.TIME, **more))
    return [hit.event.text for hit in page.hits]


async def pages(log: ChatLog, search: SearchQuery) -> AsyncIterator[SearchPage]:
    """Every page of a search."""
    page = await log.search(search)
    yield page
    while page.next_cursor is not None:
        page = await log.search(replace(search, cursor=page.next_cursor))
        yield page


async def test_every_operator_finds_what_it_says(log: ChatLog) -> None:
    lines = ["frogs are awake", "Are the FROGS asleep?", "toads are awake", "a naïve frog_king"]
    await log.add([said(text, minute=n) for n, text in enumerate(lines)])
    frogs, asleep, toads, king = lines
    assert await found(log, "frogs are") == [asleep, frogs]
    assert await found(log, '"frogs are"') == [frogs]
    assert await found(log, "frogs are", mode=Mode.PHRASE) == [frogs]
    assert await found(log, "asleep or toads") == [toads, asleep]
    assert await found(log, "asleep toads", mode=Mode.OR) == [toads, asleep]
    assert await found(log, "awake -frogs") == [toads]
    assert await found(log, "-frogs -king") == [toads]
    assert await found(log, "frog*") == [king, asleep, frogs]
    assert await found(log, "frog* -frogs") == [king]
    assert await found(log, "-frog*") == [toads]
    assert await found(log, "*oad*") == [toads]
    assert await found(log, "are *slee*") == [asleep]
    assert await found(log, "naive") == [king]
    assert await found(log, "frogs xyzzy") == []


async def test_filters_narrow_by_person_place_and_time(log: ChatLog) -> None:
    await log.add(
        [
            said("one"),
            said("two", nick="Bob", minute=1),
            said("three", place=LAKE, minute=2),
            said("four", place=Place("oftc", "#pond"), minute=3),
            said("five", minute=60 * 24),
        ]
    )
    assert await found(log, "from:BOB") == ["two"]
    assert await found(log, "from:bob two or three") == ["two"]
    assert await found(log, "-from:ada") == ["two"]
    assert await found(log, "in:#lake") == ["three"]
    assert await found(log, "in:lake") == ["three"]
    assert await found(log, "in:oftc/#pond") == ["four"]
    assert await found(log, "-in:#pond") == ["three"]
    assert await found(log, "since:2026-05-02") == ["five"]
    assert await found(log, "until:2026-05-01 -in:#lake") == ["four", "two", "one"]
    assert await found(log, "two until:2026-05-01T12:01") == []
    assert await found(log, "hours:1") == []


async def test_a_query_narrows_whatever_the_text_says(log: ChatLog) -> None:
    ids = await log.add(
        [
            said("frogs"),
            replace(said("frogs", minute=1), type=EventType.ACTION),
            replace(said("frogs", minute=2), own=True),
            replace(said("", minute=3), type=EventType.JOIN),
            replace(said("frogs", minute=4), account="ada1"),
        ]
    )

    async def hits(text: str, **narrow: Any) -> list[int]:
        within = Query(scope=PUBLIC, **narrow)
        page = await log.search(SearchQuery(text=text, within=within, order=Order.TIME))
        return [ids.index(hit.event.id) for hit in page.hits]

    for text in ("frogs", "*rog*", "-toads", ""):
        assert await hits(text) == [4, 2, 1, 0], text
        assert await hits(text, own=False) == [4, 1, 0], text
        assert await hits(text, own=True) == [2], text
        assert await hits(text, types=frozenset({EventType.ACTION})) == [1], text
        assert await hits(text, types=frozenset({EventType.JOIN})) == [], text
        assert await hits(text, before_id=ids[2], after_id=ids[0]) == [1], text
        assert await hits(text, account="ada1") == [4], text
        assert await hits(text, nick="bob") == [], text


async def test_no_kind_of_search_leaves_its_scope(log: ChatLog) -> None:
    text = "a secret 密かな話"
    private = said(text, place=ADA, nick="eve")
    await log.add([said(text, nick="eve"), said(text, place=LAKE, nick="eve"), private])
    for search in EVERY_KIND:
        page = await log.search(asked(search, scope=Scope.from_places(LAKE)))
        assert [hit.event.channel for hit in page.hits] == ["#lake"], search
        assert page.count == 1
        assert page.facets.channels == ((LAKE, 1),)
        everybody = await log.search(asked(search))
        assert {hit.event.channel for hit in everybody.hits} == {"#lake", "#pond"}, search
        assert (await log.search(asked(search, scope=Scope.from_places()))).hits == ()
        assert (
            await log.search(asked(f"{search} in:#pond", scope=Scope.from_places(LAKE)))
        ).count == 0


async def test_private_talk_neither_shows_nor_counts_however_much_there_is(log: ChatLog) -> None:
    people = [Place("irc", f"person{n}") for n in range(40)]
    for count in (3, 40):  # so few that the index is asked to leave them out, and too many
        await log.add([said("frogs", nick=f"n{count}")])
        talk = [said("frogs", place=each) for each in people[:count]]
        await log.add(talk)
        page = await log.search(asked("frogs"))
        assert {hit.event.channel for hit in page.hits} == {"#pond"}
        assert page.count == len(page.hits) == (1 if count == 3 else 2)
        assert not page.more_than_counted


@few_files
@given(st.text(max_size=40), st.sampled_from(Mode), st.sampled_from(Order))
async def test_nothing_that_people_type_is_an_error(
    log: ChatLog, text: str, mode: Mode, order: Order
) -> None:
    await log.search(asked(text, mode=mode, order=order))


@few_files
@given(st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join))
async def test_no_mixture_of_operators_is_an_error_or_leaves_its_scope(
    log: ChatLog, text: str
) -> None:
    await log.add([said("frogs a b c++"), said("frogs a b c++", place=LAKE)])
    page = await log.search(asked(text, scope=Scope.from_places(LAKE), limit=500))
    assert {hit.event.channel for hit in page.hits} <= {"#lake"}


WORDS = st.sampled_from(["a", "b", "ab", "abc", "ba", "é"])


@pytest.mark.slow
@few_files
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(WORDS, min_size=1, max_size=3, unique=True),
    WORDS,
)
async def test_a_search_finds_exactly_the_lines_that_have_all_words_and_lack_one(
    lines: list[list[str]], have: list[str], lack: str
) -> None:
    with TemporaryDirectory() as folder:
        async with Database.open(Path(folder) / "irc.db") as database:
            log = ChatLog(database)
            await log.add([said(" ".join(line), minute=n) for n, line in enumerate(lines)])
            fitting = [
                " ".join(line) for line in lines if set(have) <= set(line) and lack not in line
            ][::-1]
            assert await found(log, f"{' '.join(have)} -{lack}") == fitting


@pytest.mark.parametrize("order", Order)
async def test_pages_have_every_hit_once_whatever_is_said_meanwhile(
    log: ChatLog, order: Order
) -> None:
    ids = [*await log.add([said(f"frogs {'frogs ' * (n % 3)}{n}", minute=n) for n in range(700)])]
    for text in ("frogs", "*rog*", "-toads", "fr*"):
        seen: list[int] = []
        new: list[int] = []
        async for page in pages(log, asked(text, order=order, limit=90)):
            seen += [hit.event.id for hit in page.hits]
            new += await log.add([said("more frogs", minute=1_000)])
        assert sorted(seen) == ids, text
        if order is Order.TIME:
            assert seen == ids[::-1]
        ids += new


async def test_all_hits_are_counted_by_channel_nick_and_month(log: ChatLog) -> None:
    await log.add(
        [
            said("frogs" if n % 2 else "frogs and toads", minute=60 * n, nick=f"ada{n % 3}")
            for n in range(1_200)
        ]
    )
    await log.add([said("a lake", minute=60 * 1_200, place=LAKE), *[said("a pond")] * 2])
    few = (await log.search(asked("lake or pond", limit=1))).facets
    assert few.channels == ((POND, 2), (LAKE, 1))
    many = await log.search(asked("frogs"))
    assert (many.count, many.more_than_counted) == (1_200, False)
    assert many.facets.channels == ((POND, 1_200),)
    assert many.facets.nicks == (("ada2", 400), ("ada1", 400), ("ada0", 400))
    assert many.facets.months == (("2026-06", 468), ("2026-05", 732))
    fewer = await log.search(asked("toads"))
    assert (fewer.count, fewer.more_than_counted) == (600, False)
    following = await log.search(asked("toads", cursor=fewer.next_cursor))
    assert following.count == 0


@pytest.mark.slow
async def test_a_hard_search_goes_on_from_where_it_stopped_and_misses_nothing(log: ChatLog) -> None:
    """However slow the machine: whether a page ends for want of time is not asked here."""
    for start in range(0, 40_000, 5_000):
        await log.add(
            [
                said("蛙だ" if n % 7_000 == 5 else "nothing at all", minute=n * 10)
                for n in range(start, start + 5_000)
            ]
        )
    hits, last = 0, None
    async for page in pages(log, asked("蛙", order=Order.TIME)):
        hits += len(page.hits)
        if page.searched_back_to is not None:
            assert page.next_cursor is not None
            assert last is None or page.searched_back_to < last
            last = page.searched_back_to
    assert hits == 6


async def test_the_best_of_the_newest_come_first_unless_time_is_asked_for(log: ChatLog) -> None:
    close = "frogs awake"
    far = f"frogs and many more animals {'of the pond ' * 9}are awake"
    await log.add([said(close), said(far, minute=1)])
    page = await log.search(asked("frogs awake"))
    assert [hit.event.text for hit in page.hits] == [close, far]
    assert await found(log, "frogs awake") == [far, close]


async def test_a_snippet_shows_where_the_words_are(log: ChatLog) -> None:
    await log.add([said("The CAFÉ is open"), said(f"{'x ' * 300}café {'y ' * 300}", minute=1)])
    page = await log.search(asked("cafe or *pe*", order=Order.TIME))
    long, short = (hit.snippet for hit in page.hits)
    assert [short.text[a:b] for a, b in short.marks] == ["CAFÉ", "pe"]
    assert [long.text[a:b] for a, b in long.marks] == ["café"]
    assert len(long.text) < 310
    assert long.text.startswith("…")
    assert long.text.endswith("…")


FROGS = "池の蛙が鳴く夜"
CODE = "use std::mem::swap(&mut a) from https://doc.example/std/mem?x=1"
PERCENT = "it is 5% off"


@pytest.mark.parametrize(
    ("line", "searches"),
    [
        (FROGS, ("蛙", "蛙が", '"蛙が"', "蛙が鳴", '"蛙が鳴"', "鳴く", '"鳴く"')),
        (CODE, ("std::mem", "::swap(&mut", "doc.example/std", "EXAMPLE/STD/MEM?x=1", "*wap(*")),
        (PERCENT, ('"%"', "5%")),  # is no wildcard
    ],
)
async def test_scripts_without_spaces_code_and_addresses_are_found_as_they_stand(
    log: ChatLog, line: str, searches: Sequence[str]
) -> None:
    others = ("静かな夜", "use std mem swap", "it is 5_ off", "it is 55")
    await log.add([said(text) for text in (FROGS, CODE, PERCENT, *others)])
    for text in searches:
        assert await found(log, text) == [line], text


async def test_lines_of_many_years_are_searched_newest_first(log: ChatLog) -> None:
    years = [datetime(year, 3, 1, tzinfo=UTC) for year in range(1999, 2026)]
    await log.add([replace(said(f"frogs {time.year}"), time=time) for time in years])
    assert await found(log, "frogs") == [f"frogs {time.year}" for time in reversed(years)]
    assert await found(log, "frogs since:2010-03-01 until:2011") == ["frogs 2011", "frogs 2010"]
    assert await found(log, "*rog* until:1999") == ["frogs 1999"]


async def test_a_cursor_that_nobody_gave_away_is_refused(log: ChatLog) -> None:
    for cursor in ("", "1", "a.b.c", "1.2.3.4", "1.2.-3", "٣.1.1", "9" * 99):
        with pytest.raises(BadCursor, match="next_cursor"):
            await log.search(asked("frogs", cursor=cursor))


async def test_searches_run_beside_one_another_and_beside_a_writer(log: ChatLog) -> None:
    stored = [log.append(said(f"frogs {n}", minute=n)) for n in range(300)]
    searches = [log.search(asked("frogs")) for _ in range(20)]
    assert len(await asyncio.gather(*searches)) == 20
    await asyncio.gather(*stored)
    assert (await log.search(asked("frogs"))).count == 300


async def test_a_search_for_no_type_of_event_finds_nothing(log: ChatLog) -> None:
    await log.add([said("frogs")])
    match = WordMatch(((Phrase("frogs"),),), tags=((),))

    def matching(db: Connection) -> list[int]:
        (number,) = db.execute("SELECT number FROM partitions").fetchone()
        whole = IdRange(number, 1, LAST_ID)
        return text_index(db).ids(db, [whole], IndexQuery(match, (), 9))

    assert await log.database.read(matching) == []
