"""Questions to the log: what is understood, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.log_questions.parser import LogQuestion, Wish, read_log_question

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)  # a Sunday
NICKS = ["bob", "Lena"]


def read(text: str) -> LogQuestion | None:
    return read_log_question(text, NICKS, who="zed", now=NOW)


@pytest.mark.parametrize(
    ("text", "nick", "topic", "wish"),
    [
        ("who said the pump starts at six?", None, "the pump starts at six", Wish.BEST),
        ("who was it that mentioned the pump?", None, "the pump", Wish.BEST),
        ("do you remember who talked about the pump?", None, "the pump", Wish.BEST),
        ("who told ravi that the boat leaks?", None, "the boat leaks", Wish.BEST),
        ("who asked about the tram?", None, "the tram", Wish.BEST),
        ("what has bob said about the pump?", "bob", "the pump", Wish.BEST),
        ("can you tell me what bob said about bees?", "bob", "bees", Wish.BEST),
        ("What did LENA say about Paris?", "Lena", "Paris", Wish.BEST),
        ("what did I say about the bees?", "zed", "the bees", Wish.BEST),
        ("what was said about the invoice?", None, "the invoice", Wish.BEST),
        ("did bob mention the bees?", "bob", "the bees", Wish.BEST),
        ("has anybody mentioned the fire drill here?", None, "the fire drill", Wish.BEST),
        ("was the tram ever discussed?", None, "the tram", Wish.BEST),
        ("when did carol last speak?", "carol", "", Wish.NEWEST),
        ("when was carol last seen?", "carol", "", Wish.NEWEST),
        ("when did carol last mention the boat?", "carol", "the boat", Wish.NEWEST),
        ("when did we last talk about the marathon?", None, "the marathon", Wish.NEWEST),
        ("what was the last thing lena said?", "Lena", "", Wish.NEWEST),
        ("what did lena last say?", "Lena", "", Wish.NEWEST),
        ("last message from lena", "Lena", "", Wish.NEWEST),
        ("when was the kayak first mentioned?", None, "the kayak", Wish.OLDEST),
        ("who first mentioned the kayak?", None, "the kayak", Wish.OLDEST),
        ("who mentioned the kayak first?", None, "the kayak", Wish.OLDEST),
        ("have you seen lena?", "Lena", "", Wish.NEWEST),
        ("has lena been here today?", "Lena", "", Wish.NEWEST),
        ("what was bob complaining about?", "bob", "", Wish.NEWEST),
        ("what has bob been saying about bees?", "bob", "bees", Wish.BEST),
        ("quote lena on Paris", "Lena", "Paris", Wish.BEST),
        ("any word from bob about the boat?", "bob", "the boat", Wish.BEST),
        ("show me what was said about the boat", None, "the boat", Wish.BEST),
    ],
)
def test_it_is_understood(text: str, nick: str | None, topic: str, wish: Wish) -> None:
    question = read(text)
    assert question is not None
    assert (question.nick, question.topic, question.wish) == (nick, topic, wish)


@pytest.mark.parametrize(
    "text",
    [
        "what is the capital of France?",
        "who wrote Romeo and Juliet?",
        "who discovered penicillin?",
        "when did the war end?",
        "what did you say?",
        "what do bees make?",
        "tell me a joke",
        "remind me to call bob",
        "",
    ],
)
def test_it_is_no_question_to_the_log(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("words", "since", "until"),
    [
        ("yesterday", "2026-11-21", "2026-11-22"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("two days ago", "2026-11-20", "2026-11-21"),
        ("in march", "2026-03-01", "2026-04-01"),
        ("in december", "2025-12-01", "2026-01-01"),
        ("in 2009", "2009-01-01", "2010-01-01"),
        ("in march 2009", "2009-03-01", "2009-04-01"),
        ("since 2009", "2009-01-01", None),
        ("before 2009", None, "2009-01-01"),
        ("on friday", "2026-11-20", "2026-11-21"),
        ("on 2026-11-20", "2026-11-20", "2026-11-21"),
    ],
)
def test_words_of_time_narrow_it(words: str, since: str | None, until: str | None) -> None:
    question = read(f"did anyone talk about the boat {words}?")
    assert question is not None
    assert (question.topic, question.whole_topic) == ("the boat", f"the boat {words}")
    ends = [end and datetime.fromisoformat(end).replace(tzinfo=UTC) for end in (since, until)]
    assert [question.span.since, question.span.until] == ends


@pytest.mark.parametrize("text", ["what was said this week?", "did anyone say anything this week?"])
def test_words_of_time_alone_are_no_topic(text: str) -> None:
    question = read(text)
    assert question is not None
    assert (question.topic, question.nick) == ("", None)
    assert question.span.since == datetime(2026, 11, 16, tzinfo=UTC)


@given(text=st.text(max_size=300))
def test_nothing_that_people_type_is_an_error(text: str) -> None:
    read(text)
    read(f"who said {text}?")
    read(f"what did {text} say about {text} in 0000?")
