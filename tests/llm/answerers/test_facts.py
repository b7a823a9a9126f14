"""Facts that code gives in place of a model, on a real log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from llm.answerers.answerers import AskedQuestion, FactAnswerer, RoomView
from llm.client.profile import CAPABLE, TINY
from llm.prompt.log_window import LogWindow
from llm.reading.reading import Reading, Surroundings, read_slots
from storage.chat_log.event import Event, EventType, Place
from storage.chat_log.event_table import id_at
from storage.db.database import Database
from storage.log import ChatLog
from storage.passages.passages import LineFilter

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PEOPLE = ("ada", "bob", "eve")
ROOM = RoomView(PEOPLE, ("bob",), "frogs and ponds")


def event(
    minutes_ago: float,
    nick: str,
    text: str,
    kind: EventType = EventType.PRIVMSG,
    *,
    own: bool = False,
) -> Event:
    return Event(
        network="irc",
        channel="#pond",
        type=kind,
        time=NOW - timedelta(minutes=minutes_ago),
        nick=nick,
        text=text,
        own=own,
    )


EVENTS = (
    event(3_000, "carol", "I bought a kayak"),
    event(2_990, "carol", "", EventType.QUIT),
    event(90, "eve", "back in an hour"),
    event(80, "bob", "who feeds the frogs on friday?"),
    event(79, "ada", "bob: I do"),
    event(78, "ada", "the list is at https://frogs.example/list"),
    event(60, "bob", "the pump is loud"),
    event(2, "ada", "Terra: what can you do?"),
    event(1, "Terra", "I answer questions", own=True),
)


@pytest.fixture
async def window(tmp_path: Path) -> AsyncIterator[LogWindow]:
    async with Database.open(tmp_path / "irc.db") as database:
        log = ChatLog(database)
        await log.add(EVENTS)
        yield LogWindow(
            log=log,
            place=Place("irc", "#pond"),
            anchor=id_at(NOW),
            last=50,
            speaker="eve",
            line_filter=LineFilter(prefix=".", nicks=("Terra",)),
            people=PEOPLE,
        )


async def fact(window: LogWindow | None, kind: str, text: str, certainty: float = 0.9) -> str:
    slots = read_slots(kind, text, Surroundings(NOW, UTC, "eve", PEOPLE))
    turn = AskedQuestion(profile=TINY, log_window=window, room=ROOM)
    found = await FactAnswerer().answer(Reading(text, {kind: certainty}, slots=slots), turn)
    return found.text if found else ""


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        ("present", "who is here?", "3 here: ada, bob, eve"),
        ("present", "who is here now, who reads?", "3 here: ada, bob, eve"),
        ("present", "is bob here?", "Yes, bob is here."),
        ("present", "is zoe online?", "Nobody called zoe is here."),
        ("operators", "who is op here?", "Operators here: bob."),
        ("topic", "what's the topic?", "The topic is: frogs and ponds"),
        ("counts", "how many lines did bob write?", "bob has said 2 lines here, the first on"),
        ("counts", "how often was the pump mentioned?", "1 line here with: pump."),
        ("counts", "how often did bob say pump?", "1 line by bob here with: pump."),
        ("counts", "how often was sauerkraut mentioned?", "0 lines here with: sauerkraut. In all"),
        (
            "counts",
            "how often was zork or pump said",
            "No line here has all of: zork, pump. Alone:",
        ),
        ("counts", "how many lines so far, roughly?", "In all 7 lines by 4 people, most by ada 3"),
        ("counts", "who beats whom, most lines?", "most by ada 3, bob 2, carol 1."),
        ("counts", "how many ppl have talked here today?", "In all 6 lines today by 3 people"),
        ("counts", "how many lines were said yesterday", "Nobody said anything here yesterday."),
        ("seen", "when did you last see carol?", "carol was last here on 2026-11-20 at 10:10"),
        ("seen", "when did you last see zoe?", "I have not seen zoe here."),
        ("seen", "have you seen ada today?", "ada is here now; last said:"),
        ("links", "what link did ada post?", "https://frogs.example/list"),
        ("links", "any links by bob?", "I found no link by bob here."),
        ("missed", "what did i miss?", "4 lines by 2 people since 2026-11-22 10:30, 1 with links"),
    ],
)
async def test_a_fact_is_given(window: LogWindow, kind: str, text: str, answer: str) -> None:
    assert answer in await fact(window, kind, text)


async def test_what_was_missed_shows_the_question_that_was_answered(window: LogWindow) -> None:
    # A line that a bot has answered was for it, by whatever name.
    asked = event(50, "bob", "Elster, what is new?")
    reply = replace(event(49, "Elster", "Nothing.", own=True), reply_to=id_at(asked.time))
    await window.log.add([asked, reply])
    missed = await fact(window, "missed", "tl;dr")
    assert "<bob> who feeds the frogs on friday?" in missed
    assert missed.startswith("4 lines by 2 people")


async def test_the_last_line_of_somebody_may_have_been_said_to_the_bot(window: LogWindow) -> None:
    assert "<ada> Terra: what can you do?" in await fact(window, "seen", "when was ada last seen?")


async def test_an_uncertain_reading_and_a_capable_model_get_no_fact(window: LogWindow) -> None:
    assert await fact(window, "present", "who is here?", certainty=0.4) == ""
    assert await fact(window, "seen", "how long has biscuit been here", certainty=0.8) == ""
    turn = AskedQuestion(profile=CAPABLE, log_window=window, room=ROOM)
    assert await FactAnswerer().answer(Reading("who?", {"present": 0.99}), turn) is None


async def test_without_a_log_only_the_room_is_known() -> None:
    assert await fact(None, "topic", "topic?") == "The topic is: frogs and ponds"
    assert await fact(None, "missed", "what did i miss?") == ""


async def test_a_link_is_chosen_by_its_topic(window: LogWindow) -> None:
    await window.log.add([event(30, "ada", "news: https://frogs.example/news")])
    found = await fact(window, "links", "the link to the list please")
    assert "https://frogs.example/list" in found
    assert "news" not in found
    assert "https://frogs.example/news" in await fact(window, "links", "any links?")
