"""Numbers about the log: what was counted as it was written is what counting again would find."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.chat_log import deletion, statistics
from storage.chat_log.event import EVERYTHING, PUBLIC, SPOKEN, Event, EventType, Place, Scope
from storage.chat_log.statistics import DayStats
from storage.db.database import Database
from storage.log import ChatLog, Query
from tests.kit.lines import ADA, LAKE, NOON, POND, said

HOUR = timedelta(hours=1)
NAIVE = NOON.replace(tzinfo=None)


def at(time: datetime = NOON, **fields: Any) -> Event:
    return said(time=time, **fields)


EVENTS = st.lists(
    st.builds(
        lambda hours, nick, place, kind, own, reply: replace(
            at(NOON + hours * HOUR, nick=nick, place=place),
            type=kind,
            own=own,
            reply_to=1 if reply else None,
        ),
        st.integers(-60, 60),
        st.sampled_from(["ada", "Ada", "bob"]),
        st.sampled_from([POND, LAKE, ADA]),
        st.sampled_from([EventType.PRIVMSG, EventType.NOTICE, EventType.JOIN]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)
SCOPES = st.sampled_from(
    [PUBLIC, EVERYTHING, Scope.from_places(POND), Scope.from_places(POND, ADA), Scope.from_places()]
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(EVENTS, SCOPES, st.data())
async def test_counts_stay_true_whatever_is_added_and_removed(
    events: list[Event], scope: Scope, data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.sampled_from(range(len(events))))) if events else set()
    own = data.draw(st.sampled_from([None, False, True]))
    span = data.draw(st.tuples(st.integers(-70, 70), st.integers(-70, 70)) | st.none())
    since, until = (NOON + hours * HOUR for hours in span) if span else (None, None)
    query = Query(scope=scope, own=own, since=since, until=until, limit=99)
    with TemporaryDirectory() as folder:
        async with Database.open(Path(folder) / "irc.db") as database:
            log = ChatLog(database)
            ids = await log.add(events)
            assert await deletion.remove(log.database, [ids[index] for index in gone]) == len(gone)
            stats = await log.read(statistics.stats, query, top=99)
            left = await log.find(replace(query, types=SPOKEN))
            listed = {
                each.place: each.events for each in await log.read(statistics.channels, scope)
            }
            all_left = await log.find(Query(scope=scope, limit=99))
    lines = Counter(event.nick.lower() for event in left)
    assert {nick.lower(): count for nick, count in stats.top} == lines
    assert (stats.lines, stats.people) == (len(left), len(lines))
    assert stats.replies == sum(event.own and event.reply_to is not None for event in left)
    assert (stats.first, stats.last) == ((left[0].time, left[-1].time) if left else (None, None))
    places = Counter(Place(event.network, event.channel) for event in all_left)
    assert {place: count for place, count in listed.items() if count} == places


async def test_the_heat_map_has_a_row_for_each_weekday_from_monday(log: ChatLog) -> None:
    await log.add([at(), at(NOON + HOUR), at(NOON + 25 * HOUR), said(place=ADA)])
    for scope in (PUBLIC, Scope.from_places(POND)):
        heat = await log.read(statistics.heat_map, Query(scope=scope))
        assert [len(row) for row in heat] == [24] * 7
        assert (heat[4][12], heat[4][13], heat[5][13]) == (1, 1, 1)
        assert sum(map(sum, heat)) == 3


async def test_days_are_days_of_the_zone_that_is_asked_for(log: ChatLog) -> None:
    late = datetime(2026, 5, 1, 22, 30, tzinfo=UTC)
    answer = replace(at(late, nick="Terra"), own=True, reply_to=1)
    winter = datetime(2026, 1, 10, 22, 30, tzinfo=UTC)
    await log.add([at(winter), at(), at(late), answer])
    query = Query(scope=PUBLIC)
    assert await log.read(statistics.days, query) == [
        DayStats(date(2026, 1, 10), 1, 0),
        DayStats(date(2026, 5, 1), 3, 1),
    ]
    assert await log.read(statistics.days, query, ZoneInfo("Europe/Vienna")) == [
        DayStats(date(2026, 1, 10), 1, 0),
        DayStats(date(2026, 5, 1), 1, 0),
        DayStats(date(2026, 5, 2), 2, 1),
    ]
    assert await log.read(statistics.days, replace(query, since=NOON + HOUR)) == [
        DayStats(date(2026, 5, 1), 2, 1)
    ]
    assert await log.read(statistics.days, replace(query, until=NOON)) == [
        DayStats(date(2026, 1, 10), 1, 0)
    ]
    assert await log.read(statistics.days, Query(scope=Scope.from_places(LAKE))) == []


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.datetimes(NAIVE.replace(year=2003), NAIVE.replace(year=2030)), max_size=8),
    st.sampled_from(["UTC", "America/New_York", "Pacific/Auckland", "Africa/Casablanca"]),
)
async def test_every_line_is_on_its_day_in_zones_of_whole_hours(
    times: list[datetime], name: str
) -> None:
    zone = ZoneInfo(name)
    aware = sorted(time.replace(tzinfo=UTC) for time in times)
    with TemporaryDirectory() as folder:
        async with Database.open(Path(folder) / "irc.db") as database:
            await ChatLog(database).add([at(time) for time in aware])
            days = await ChatLog(database).read(statistics.days, Query(scope=PUBLIC), zone)
    lines = Counter(time.astimezone(zone).date() for time in aware)
    assert {day.date: day.lines for day in days} == lines
    assert [day.date for day in days] == sorted(lines)


async def test_a_sparkline_ends_with_the_newest_day(log: ChatLog) -> None:
    await log.add([at(NOON - 100 * 24 * HOUR), at(NOON - 24 * HOUR), at(), at()])
    await log.add([said(place=LAKE, time=NOON - 3 * 24 * HOUR), said(place=ADA)])
    lines = await log.read(statistics.sparklines, PUBLIC, NOON + HOUR, days=3)
    assert lines == {POND: (0, 1, 2)}
    assert await log.read(statistics.sparklines, PUBLIC, NOON - 48 * HOUR, days=3) == {
        LAKE: (0, 0, 1)
    }


async def test_a_person_is_shown_as_far_as_the_scope_goes(log: ChatLog) -> None:
    await log.add([said(nick="ada"), at(NOON + HOUR, nick="Ada"), said(place=ADA)])
    await log.add([at(NOON + 30 * HOUR, place=LAKE), said(nick="bob")])
    person = await log.read(statistics.person, PUBLIC, "ADA")
    assert person is not None
    assert (person.nick, person.lines) == ("ada", 3)
    assert (person.first, person.last) == (NOON, NOON + 30 * HOUR)
    assert person.places == ((POND, 2), (LAKE, 1))
    assert [(day.date.day, day.lines) for day in person.days] == [(1, 2), (2, 1)]
    assert await log.read(statistics.person, Scope.from_places(LAKE), "bob") is None


async def test_context_is_the_neighbours_on_the_channel_and_stays_in_scope(log: ChatLog) -> None:
    ids = await log.add([at(NOON + n * HOUR, place=LAKE if n % 2 else POND) for n in range(7)])
    context = await log.context(PUBLIC, ids[2], before=5, after=1)
    assert context is not None
    assert [event.id for event in context.before] == [ids[0]]
    assert context.event.id == ids[2]
    assert [event.id for event in context.after] == [ids[4]]
    assert await log.context(Scope.from_places(LAKE), ids[2], before=1, after=1) is None


@pytest.mark.parametrize("scope", [PUBLIC, Scope.from_places(POND)])
async def test_a_nick_that_is_ours_and_somebody_elses_is_ranked_by_the_sum(
    log: ChatLog, scope: Scope
) -> None:
    lines = [("ada", 10, False), ("bob", 9, False), ("Terra", 8, False), ("terra", 8, True)]
    await log.add(
        [replace(said(nick=nick), own=own) for nick, often, own in lines for _ in range(often)]
    )
    for top, nicks in ((1, ["terra"]), (3, ["terra", "ada", "bob"])):
        stats = await log.read(statistics.stats, Query(scope=scope), top=top)
        assert [nick.lower() for nick, _ in stats.top] == nicks
    assert [count for _, count in stats.top] == [16, 10, 9]
