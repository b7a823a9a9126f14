"""Questions to the log, answered with its lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from llm.log_questions import (
    PERHAPS_LEAD,
    LogAnswers,
    LogQuestion,
    QuotedAnswer,
    Quoting,
    log_question,
)
from llm.reading.reading import Reading, Surroundings, read_slots
from llm.retrieval import Retrieval
from storage.chat_log.event import Event, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.passages.passages import LineFilter
from tests.kit import lines
from tests.kit.tables import rows

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)
PEOPLE = ("bob", "carol", "lena", "zoe")
POND = Scope.from_places(Place("irc", "#pond"))
PUMP = "the greenhouse pump starts at six"
QUOTING = Quoting(link=lambda event: f"http://logs/{event.nick}")
SPOKEN_HERE = LineFilter(nicks=("Terra",))


def said(hours_ago: float, nick: str, text: str, channel: str = "#pond") -> Event:
    time = NOW - timedelta(hours=hours_ago)
    return lines.said(text, place=Place("irc", channel), time=time, nick=nick)


@pytest.fixture
async def log(database: Database) -> ChatLog:
    log = ChatLog(database)
    await log.add(
        [
            said(900, "lena", "the kayak has a leak"),
            said(50, "bob", PUMP),
            said(40, "lena", "I sold the kayak"),
            said(30, "bob", "hello all"),
            said(26, "carol", "good night"),
            said(3, "eve", ".terrarium who said something about the pump?"),
            said(2, "eve", "Terra: the greenhouse pump is broken"),
            said(1, "mallory", "the greenhouse pump is secret", "#staff"),
        ]
    )
    return log


def question_of(kind: str, text: str) -> LogQuestion | None:
    slots = read_slots(kind, text, Surroundings(NOW, UTC, "eve", PEOPLE))
    return log_question(Reading(text, {kind: 1.0}, slots=slots), slots.person)


def answers(log: ChatLog) -> LogAnswers:
    return LogAnswers(Retrieval(log), Query(scope=POND), QUOTING, SPOKEN_HERE)


async def answer(log: ChatLog, kind: str, text: str) -> QuotedAnswer:
    question = question_of(kind, text)
    assert question is not None
    return await answers(log).to_log(question)


QUOTED = f"[2026-11-20 06:00] <bob> {PUMP}  http://logs/bob"


@pytest.mark.parametrize(("kind", "text", "expected"), rows("llm/log_answers.txt"))
async def test_the_lines_are_the_answer(log: ChatLog, kind: str, text: str, expected: str) -> None:
    assert (await answer(log, kind, text)).text == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("who_said", "who mentioned the greenhouse?", QUOTED),
        ("local", "when does the greenhouse pump start?", QUOTED),
        (
            "said_by",
            "what did zoe say about the greenhouse?",
            "I find nothing like that by zoe here.",
        ),
        ("general", "what did Einstein say about time?", None),
        ("general", "what is the capital of France?", None),
    ],
)
async def test_any_question_has_an_answer_if_it_is_about_the_log(
    log: ChatLog, kind: str, text: str, expected: str | None
) -> None:
    question = question_of(kind, text)
    found = await answers(log).answer(text, question)
    assert (found and found.text) == expected


async def test_two_possible_answers_of_one_talk_say_no_line_twice(log: ChatLog) -> None:
    talk = (
        ("marit", "oh and the bank gives us 500 for new helmets!!"),
        ("kilian", "great!"),
        ("emeka", "whats a helmet cost"),
        ("marit", "62 each. so 8"),
        ("tobi", "need 10"),
    )
    await log.add([said(0.9 - n / 60, nick, text) for n, (nick, text) in enumerate(talk)])
    text = "how much is a helmet?"
    found = await LogAnswers(Retrieval(log), Query(scope=POND)).answer(text, None)
    assert found
    assert [len(quote) for quote in found.quotes] == [3, 2]
    assert sorted(event.text for event in found.shown) == sorted(text for _, text in talk)


async def test_a_question_about_a_time_alone_has_its_last_lines(log: ChatLog) -> None:
    found = await answer(log, "search", "what was said last week?")
    assert found.text == "Nobody said anything here last week."
    found = await answer(log, "search", "what was said two days ago?")
    assert [event.text for event in found.shown] == ["I sold the kayak", PUMP]


async def test_nobody_is_quoted_who_has_opted_out(database: Database, log: ChatLog) -> None:
    await OptOuts(database).add("irc", Identity("bob"))
    found = await answer(log, "who_said", "who mentioned the pump?")
    assert found.text == "Nobody said that here."
    found = await answer(log, "when_said", "when did bob last speak?")
    assert found.text == "bob said nothing here."
    near = await Retrieval(log).find("when does the pump start?", Query(scope=POND))
    assert PUMP not in [each.event.text for each in near.passages]


def test_the_line_that_a_model_took_its_words_from_stands_first_below_them() -> None:
    told = [
        said(3, "wren", "windows locks files"),
        said(2, "wren", "it works better on linux"),
        said(2, "eve", "which tin opener?"),
        said(1, "bob", "the meetup is in room 12, not in the big hall"),
    ]
    shown = tuple(map(QUOTING.line, told))
    quotes = tuple((event,) for event in told[:3])
    nearest = QuotedAnswer(PERHAPS_LEAD, quotes, tuple(told), QUOTING)
    question = "which door do I go to for our get-together?"
    taken = nearest.evidence(question, "The door for our get-together is in room 12.")
    assert taken == (shown[3], shown[0], shown[1])
    assert nearest.evidence(question, "I do not know.") == shown[:3]
    sure = QuotedAnswer.of("", [told[1]], QUOTING)
    assert sure.evidence(question, "On linux.") == shown[1:2]
