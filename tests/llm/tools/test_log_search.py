"""The tools over the log, on a real one: what is found, counted, left out, and how to go on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from llm.tools.log_search import LogTools
from llm.tools.toolbox import Toolbox, ToolError
from storage.chat_log.event import PUBLIC, Event, EventType, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog
from storage.passages.passages import LineFilter
from tests.kit import lines

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
POND = Place("irc", "#pond")
HERE = Scope.from_places(POND)
TERRA = LineFilter(nicks=("Terra",))


def said(minute: float, nick: str, text: str, channel: str = "#pond", **more: Any) -> Event:
    time = NOON + timedelta(minutes=minute)
    return lines.said(text, place=Place("irc", channel), time=time, nick=nick, **more)


LINES = [
    said(-3000, "zoe", "", type=EventType.JOIN),
    said(-2900, "zoe", "the greenhouse is cold"),
    said(-2800, "zoe", "bye", type=EventType.QUIT),
    said(0, "ada", "the greenhouse pump starts at six"),
    said(1, "bob", "who has set the greenhouses on fire?"),
    said(2, "ada", "Terra: how warm is the greenhouse?"),
    said(2.1, "Terra", "ada: the greenhouse has 20 degrees", own=True),
    said(3, "eve", "we agreed on memory.high of 4G"),
    said(4, "eve", "my memory is not high"),
    said(5, "mallory", "the greenhouse key is under the mat", "#staff"),
]


@pytest.fixture
async def log(database: Database) -> ChatLog:
    log = ChatLog(database)
    await log.add(LINES)
    return log


async def call(tools: LogTools, name: str, most: int = 2_000, **given: object) -> list[str]:
    """Return the lines of a tool's result."""
    box = Toolbox.from_owners(tools, length=most)
    result = str(await box.run(name, json.dumps(given), 5))
    assert len(result) <= most
    return result.splitlines()


async def search(log: ChatLog, query: str = "", most: int = 2_000, **given: object) -> list[str]:
    tools = LogTools(log=log, scope=HERE, line_filter=TERRA)
    return await call(tools, "search_log", most, query=query, **given)


ADA = "[2026-03-01 12:00:00] <ada> the greenhouse pump starts at six"
BOB = "[2026-03-01 12:01:00] <bob> who has set the greenhouses on fire?"
ZOE = "[2026-02-27 11:40:00] <zoe> the greenhouse is cold"


async def test_lines_are_found_by_a_word_in_any_form_counted_and_shown_in_order_of_time(
    log: ChatLog,
) -> None:
    assert await search(log, "giraffe") == ["no line has giraffe"]
    assert await search(log, "Žirafë") == ["no line has Žirafë"]
    for query in ("greenhouse", "What about the greenhouse?"):
        assert await search(log, query) == ["3 lines with greenhouse", ZOE, ADA, BOB]
    assert await search(log, "greenhouses") == ["3 lines with greenhouses", ZOE, ADA, BOB]


async def test_lines_with_all_words_come_first_and_then_those_with_some(log: ChatLog) -> None:
    assert await search(log, "pump greenhouse") == ["1 line with all of: pump, greenhouse", ADA]
    fire = await search(log, "who set a fire at the greenhouse yesterday evening?")
    assert fire[0].startswith("no line has all of: set, fire, greenhouse, yesterday, evening; ")
    assert '"fire" alone: 1 line, "greenhouse" alone: 3 lines, "yesterday" alone: 0' in fire[0]
    assert fire[1] == "with some of them:"
    assert set(fire[2:]) == {ZOE, ADA, BOB}


async def test_a_line_with_one_word_of_several_is_found(log: ChatLog) -> None:
    await log.add([said(6, "ada", "the batteries of the humidity sensors in the shed are flat")])
    await log.add([said(7, "bob", "the correction is minus 1.5 degrees")])
    found = await search(log, "humidity sensors batteries correction")
    assert found[1] == "with some of them:"
    assert [line.partition("> ")[2][:14] for line in found[2:]] == [
        "the batteries ",
        "the correction",
    ]


async def test_phrases_and_parts_are_found_as_they_are_written(log: ChatLog) -> None:
    eve = "[2026-03-01 12:03:00] <eve> we agreed on memory.high of 4G"
    assert await search(log, "memory.high") == ["1 line found:", eve]
    assert await search(log, '"greenhouse pump" or fire') == ["2 lines found:", ADA, BOB]
    best = await search(log, "greenhouse or memory", limit=2)
    assert (best[0], len(best)) == ("4 lines found, the best 2:", 3)
    none = "greenhouse -cold -pump -fire"
    assert await search(log, none) == [f"no line matches: {none}"]
    [heading, *lines] = await search(log, "memory.high swap")  # in no line: then by words
    assert heading.startswith("no line has all of: memory, high, swap; ")
    assert eve in lines


async def test_our_own_lines_and_what_was_said_to_us_are_found_on_request(log: ChatLog) -> None:
    lines = await search(log, "greenhouse", own=True)
    assert lines[0] == "5 lines with greenhouse"
    assert lines[-2:] == [
        "[2026-03-01 12:02:00] <ada> Terra: how warm is the greenhouse?",
        "[2026-03-01 12:02:06] <Terra> ada: the greenhouse has 20 degrees",
    ]


async def test_a_search_is_narrowed_by_nick_and_time(log: ChatLog) -> None:
    assert (await search(log, "greenhouse", nick="ZOE"))[1:] == [ZOE]
    assert (await search(log, "greenhouse", after="2026-03-01"))[1:] == [ADA, BOB]
    assert (await search(log, "greenhouse", before="2026-03-01 12:01:00"))[1:] == [ZOE, ADA]
    assert (await search(log, "greenhouse", around="[2026-03-01 11:00:00]"))[1:] == [ADA, BOB]
    around = await search(log, around="2026-03-01T13:01:00+01:00", limit=3)
    assert around == [ADA, BOB, "[2026-03-01 12:02:00] <ada> Terra: how warm is the greenhouse?"]
    assert await search(log, limit=2, nick="eve", before="2026-03-01 12:04") == [
        "[2026-03-01 12:03:00] <eve> we agreed on memory.high of 4G"
    ]
    with pytest.raises(ToolError, match=r"before: .*write a time as 2026-03-01 12:00:00"):
        await search(log, "greenhouse", before="yesterday")
    with pytest.raises(ToolError, match="around: there is no such line"):
        await search(log, around="1234567890123")


async def test_times_are_given_and_shown_in_one_zone(log: ChatLog) -> None:
    tools = LogTools(log=log, scope=HERE, line_filter=TERRA, zone=ZoneInfo("Europe/Vienna"))
    ada = ADA.replace("12:00:00", "13:00:00")
    wanted: tuple[dict[str, Any], ...] = (
        {"query": "pump", "after": "2026-03-01 13:00:00"},
        {"query": "pump", "around": "2026-03-01"},
        {"around": "2026-03-01T12:00:01Z", "limit": 2},
    )
    for given in wanted:
        assert ada in await call(tools, "search_log", **given)
    assert ada not in await call(tools, "search_log", query="pump", after="2026-03-01 13:00:30")
    span: dict[str, Any] = {"from": "2026-03-01 13:00", "to": "2026-03-01 13:01"}
    assert await call(tools, "read_log", **span) == [ada]
    far = replace(tools, zone=ZoneInfo("Pacific/Kiritimati"))  # 14 hours ahead
    assert "1 line since 2026-02-28: #pond 1" in await call(far, "people", nick="zoe")


async def test_a_channel_that_may_not_be_read_is_refused_with_those_that_may(log: ChatLog) -> None:
    for name in ("#Pond", "pond"):
        assert (await search(log, "greenhouse", channel=name))[0] == "3 lines with greenhouse"
    with pytest.raises(ToolError, match=r"channel: .*; there are: #pond$"):
        await search(log, "key", channel="#staff")
    everywhere = LogTools(log=log, scope=PUBLIC)
    [_, line] = await call(everywhere, "search_log", query="key", channel="#staff")
    assert line == "irc/#staff [2026-03-01 12:05:00] <mallory> the greenhouse key is under the mat"


async def test_the_private_conversation_is_found_by_the_name_that_it_has_in_results(
    log: ChatLog,
) -> None:
    await log.add([said(6, "ada", "where is the greenhouse key?", "ada")])
    tools = LogTools(log=log, scope=Scope.from_places(Place("irc", "ada"), POND))
    line = "(private) [2026-03-01 12:06:00] <ada> where is the greenhouse key?"
    assert await call(tools, "read_log", channel="(private)") == [line]
    found = await call(tools, "search_log", query="greenhouse", channel="(private)")
    assert found == ["1 line with greenhouse", line]
    with pytest.raises(ToolError, match="there is none of this name"):
        await search(log, "key", channel="(private)")


async def test_each_line_has_its_link_where_there_are_pages(log: ChatLog) -> None:
    tools = LogTools(log=log, scope=HERE, link=lambda event: f"http://logs/line/{event.id}")
    [_, line] = await call(tools, "search_log", query="pump")
    number = line.rpartition("/")[2]
    assert line == f"{ADA}  http://logs/line/{number}"
    assert (await call(tools, "search_log", around=number, limit=1)) == [line]


async def test_when_a_result_is_full_the_best_lines_stay_and_it_says_how_to_go_on(
    log: ChatLog,
) -> None:
    # All in one minute, as imported logs have them.
    await log.add([said(20, "gus", f"frog number {n}") for n in range(150)])
    heading, *lines, note = await search(log, "frog number", most=100_000, limit=100)
    assert heading == "150 lines with all of: frog, number"
    assert [line.rpartition(" ")[2] for line in lines] == [str(n) for n in range(50, 150)]
    match = re.fullmatch(r"\(older ones with all: before=(\d+)\)", note)
    assert match
    [_, *older] = await search(log, "frog number", limit=100, before=match[1], most=100_000)
    assert [line.rpartition(" ")[2] for line in older] == [str(n) for n in range(50)]
    _, *few, paging, left_out = await search(log, "frog", most=1_000, limit=50)
    assert few[-1].endswith("frog number 149")
    assert paging.startswith("(older ones with all: before=")
    assert left_out == f"(left out for lack of room: {50 - len(few)} of the best lines)"


async def test_a_span_is_read_whole_part_by_part_from_either_end(log: ChatLog) -> None:
    await log.add([said(20, "gus", f"frog number {n}") for n in range(150)])
    everything = LogTools(log=log, scope=HERE)
    lines = await call(everything, "read_log", 20_000, **{"from": "2026-03-01"})
    assert (lines[:2], len(lines)) == ([ADA, BOB], 156)
    forth: list[str] = []
    start: object = "2026-03-01"
    while start:
        *part, last = await call(everything, "read_log", 1_000, **{"from": start})
        match = re.fullmatch(r"\(more follows; go on with from=(\d+)\)", last)
        forth += part if match else [*part, last]
        start = match and match[1]
    assert forth == lines
    *end, note = await call(everything, "read_log", 1_000)
    assert end == lines[-len(end) :]
    assert re.fullmatch(r"\(more before that; go on with to=\d+\)", note)
    number = note[:-1].rpartition("=")[2]
    *before, _ = await call(everything, "read_log", 1_000, to=number)
    assert before == lines[-len(end) - len(before) : -len(end)]
    day = await call(everything, "read_log", 500, **{"from": "2026-02-27", "to": "2026-02-27"})
    assert day == [ZOE]
    none = await call(everything, "read_log", 500, **{"from": "2026-02-01", "to": "2026-02-02"})
    assert none == ["nothing was said then"]


async def test_our_long_answers_are_read_in_full(log: ChatLog) -> None:
    await log.add([said(30, "ada", "Terra: explain the valve")])
    question = await number_of(log, "valve")
    own: dict[str, Any] = {"own": True, "reply_to": question}
    shown = ("ada: It opens.", "(2 more lines: .more)")
    await log.add([said(30.5 + n / 10, "Terra", text, **own) for n, text in enumerate(shown)])
    await log.add([said(31, "ada", "thanks")])

    async def answers(events: Sequence[Event]) -> dict[int, str]:
        return {event.reply_to: whole for event in events if event.reply_to}

    tools = LogTools(log=log, scope=HERE, answers=answers)
    whole = "ada: It opens.\n<b>Then</b> it closes.\n[2026-03-01 12:00:01] <bob> no"
    spans: list[dict[str, Any]] = [{"from": str(question)}, {"to": "2026-03-01"}]
    for span in spans:
        assert (await call(tools, "read_log", **span))[-5:] == [
            "[2026-03-01 12:30:00] <ada> Terra: explain the valve",
            "[2026-03-01 12:30:30] <Terra> ada: It opens.",
            "  <b>Then</b> it closes.",
            "  [2026-03-01 12:00:01] <bob> no",
            "[2026-03-01 12:31:00] <ada> thanks",
        ]
    whole = "ada: " + "It opens. " * 1_000
    *_, cut, thanks = await call(tools, "read_log", 1_000, **spans[0])
    assert re.fullmatch(r"  \[9,\d\d\d more characters\]", cut)
    assert thanks.endswith("thanks")


async def test_nothing_after_the_question_is_found(log: ChatLog) -> None:
    tools = LogTools(log=log, scope=HERE, before=await number_of(log, "fire"))
    assert (await call(tools, "search_log", query="greenhouse"))[1:] == [ZOE, ADA]
    assert (await call(tools, "read_log"))[-1] == ADA


async def number_of(log: ChatLog, word: str) -> int:
    tools = LogTools(log=log, scope=HERE, link=lambda event: str(event.id))
    return int((await call(tools, "search_log", query=word))[1].rpartition("  ")[2])


async def test_of_a_person_their_last_line_and_coming_and_number_of_lines_are_told(
    log: ChatLog,
) -> None:
    tools = LogTools(log=log, scope=HERE, present=lambda: {POND: ["ada", "Bob", "Terra"]})
    assert await call(tools, "people", nick="zoe") == [
        "zoe is now in: none of the channels",
        f"said last: {ZOE}",
        "came or went last: [2026-02-27 13:20:00] *** zoe quit (bye)",
        "1 line since 2026-02-27: #pond 1",
    ]
    assert (await call(tools, "people", nick="bob"))[0] == "bob is now in: #pond"
    assert await call(tools, "people", nick="mallory") == [
        "mallory is now in: none of the channels",
        "no line of mallory is known here",
    ]
    assert await call(tools, "people") == ["#pond: ada, Bob, Terra"]
    unknown = replace(tools, present=None)
    [told] = await call(unknown, "people")
    assert told.startswith("who is there now is not known here; last lines: zoe [2026-02-27 11:40")
    assert "bob [2026-03-01 12:01:00]" in told
    assert "Terra" not in told


async def test_the_channels_are_those_in_scope_with_their_last_event(log: ChatLog) -> None:
    tools = LogTools(log=log, scope=HERE)
    assert await call(tools, "channels") == ["#pond: 9 events, the last [2026-03-01 12:04:00]"]
    everywhere = replace(tools, scope=PUBLIC)
    assert [line.split(":")[0] for line in await call(everywhere, "channels")] == [
        "irc/#staff",
        "irc/#pond",
    ]
    assert await call(replace(tools, scope=Scope.from_places()), "channels") == ["none"]


async def test_nothing_tells_of_who_has_opted_out(log: ChatLog, database: Database) -> None:
    await OptOuts(database).add("irc", Identity("zoe"))
    assert await search(log, "cold") == ["no line has cold"]
    assert await search(log, '"is cold"') == ["no line has cold"]
    assert (await search(log, "greenhouse"))[0] == "2 lines with greenhouse"
    tools = LogTools(log=log, scope=HERE)
    assert await call(tools, "people", nick="zoe") == ["no line of zoe is known here"]
    assert ZOE not in await call(tools, "read_log")
    assert "zoe" not in str(await call(tools, "people"))
    assert "zoe" not in str(await call(tools, "search_log", around="2026-02-27 11:40:00"))
