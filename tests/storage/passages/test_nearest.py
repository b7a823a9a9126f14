"""Lines that are found by what they mean, where they share no word with the question."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from storage.chat_log.event import Event, EventType, Place, Scope
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.passages.passages import LineFilter
from storage.passages.word_vectors import word_vectors
from tests.kit.stores import Stores

PLACE = Place("irc", "#club")
SAID = (
    ("mira", "the next board election is on the 3rd of november"),
    ("jonas", "kernel 6.9 broke my suspend, had to go back"),
    ("corvin", "I play the bassoon in a small orchestra on weekends"),
    ("elke", "does anyone make music here?"),
    ("tobi", "the library closes at 19:00 on fridays now"),
    ("Terra", "I make music all day long."),
    ("wren", ".terrarium who makes music?"),
    ("anouk", "my talk about sqlite got accepted for the conference"),
    ("sable", "ok good night"),
)


@pytest.fixture
async def log(stores: Stores) -> AsyncIterator[ChatLog]:
    async with Database.open(stores("irc")) as database:
        log = ChatLog(database)
        begin = datetime(2026, 11, 1, tzinfo=UTC)
        events = [
            Event(
                network=PLACE.network,
                channel=PLACE.channel,
                type=EventType.PRIVMSG,
                time=begin + timedelta(minutes=minute),
                nick=nick,
                user="u",
                host=f"{nick}.example.org",
                text=text,
                own=nick == "Terra",
            )
            for minute, (nick, text) in enumerate(SAID)
        ]
        await log.add(events)
        yield log


async def nearest(log: ChatLog, question: str, place: Place = PLACE) -> list[str]:
    found = await log.nearest_for_model(
        question, Query(scope=Scope.from_places(place), limit=3), LineFilter(nicks=("Terra",))
    )
    return [each.event.nick for each in found.items]


@pytest.mark.parametrize(
    ("question", "nick"),
    [
        ("on what date do we vote for the new chairs?", "mira"),
        ("who of us makes music?", "corvin"),
        ("how late can i borrow books at the end of the week?", "tobi"),
        ("which subject will anouk present?", "anouk"),
    ],
)
async def test_a_line_in_other_words_comes_first(log: ChatLog, question: str, nick: str) -> None:
    assert (await nearest(log, question))[0] == nick


async def test_commands_and_own_lines_are_never_nearest(log: ChatLog) -> None:
    assert not {"Terra", "wren"} & set(await nearest(log, "who of us makes music?"))


async def test_nothing_is_near_in_another_channel_or_without_a_word(log: ChatLog) -> None:
    assert await nearest(log, "who of us makes music?", Place("irc", "#other")) == []
    assert await nearest(log, "what is that?") == []


def test_words_of_one_subject_have_similar_vectors() -> None:
    table = word_vectors()
    coffee, espresso, kernel = (table.vector(word) for word in ("coffee", "espresso", "kernel"))
    assert coffee is not None
    assert espresso is not None
    assert kernel is not None
    assert table.similarity(coffee, espresso) > 0.5 > table.similarity(coffee, kernel)
    assert table.similarity(coffee, coffee) == pytest.approx(1, abs=0.02)
    assert table.vector("xyzzyq") is None
