"""The slots of sentences whose kind is known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from llm.log_questions import LogQuestion, log_question
from llm.reading.reading import Reading, Slots, Surroundings, read_slots, strip_frame
from llm.reading.spans import ALL_TIME

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HERE = Surroundings(NOW, UTC, "eve", ("bob", "Lena"))


def question_of(kind: str, text: str, person: str = "") -> LogQuestion | None:
    slots = read_slots(kind, text, HERE)
    return log_question(Reading(text, {kind: 1.0}, slots=slots), person or slots.person)


@pytest.mark.parametrize(
    ("kind", "text", "topic", "nick", "wants"),
    [
        ("who_said", "who said something about the pump?", "pump", None, ""),
        ("who_said", "who was the first to mention the kayak?", "kayak", None, "first"),
        ("said_by", "what did bob say about the pump?", "pump", "bob", ""),
        ("said_by", "what did lena last say?", "", "Lena", "last"),
        ("said_by", "what was the last thing I said here?", "", "eve", "last"),
        ("said_by", "was hat Lena über den Kajak gesagt?", "Kajak", "Lena", ""),
        ("search", "has anyone mentioned sauerkraut?", "sauerkraut", None, ""),
    ],
)
def test_a_question_to_the_log_has_a_topic_and_a_person(
    kind: str, text: str, topic: str, nick: str | None, wants: str
) -> None:
    found = question_of(kind, text)
    assert found
    assert (found.topic, found.nick, found.wants) == (topic, nick, wants)


def test_a_question_for_a_time_asks_when_it_was_said() -> None:
    found = question_of("when_said", "when did bob mention the pump?")
    assert found
    assert (found.about_time, found.topic, found.nick) == (True, "pump", "bob")
    timed = question_of("who_said", "who talked about the kayak yesterday?")
    assert timed
    assert timed.topic == "kayak"
    assert timed.span.since == datetime(2026, 11, 21, tzinfo=UTC)


def test_without_a_topic_or_a_person_nothing_is_asked_of_the_log() -> None:
    assert question_of("said_by", "what did they say about it?") is None
    assert question_of("who_said", "who said that?") is None


def test_somebody_who_has_left_is_among_the_names() -> None:
    slots = read_slots("seen", "when did you last see carol?", HERE)
    assert slots.names == ("carol",)
    assert read_slots("seen", "is bob's cat here?", HERE).person == "bob"


def test_people_are_known_by_the_beginning_of_their_nicks() -> None:
    here = Surroundings(HERE.now, HERE.zone, "eve", ("eve", "keith_w", "ada", "ada|away"))
    assert read_slots("said_by", "what did keith say?", here).person == "keith_w"
    assert read_slots("said_by", "what did ada say?", here).person == "ada"
    assert read_slots("when_said", "when was it, a question from my friend", here).person == ""


@pytest.mark.parametrize(
    ("kind", "text", "rest"),
    [
        ("remind", "can you please remind me to set the table", "set the table"),
        ("remind", "remind me: gym", "gym"),
        ("remind", "erinnere mich bitte daran, Mama anzurufen", "Mama anzurufen"),
        ("remind", "rappelle-moi de sortir le chien", "sortir le chien"),
        ("remember", "keep in mind that my tea is oolong.", "my tea is oolong"),
        ("remind", "", ""),
        ("remind", "remind me", ""),
    ],
)
def test_the_frame_of_a_sentence_is_taken_off(kind: str, text: str, rest: str) -> None:
    assert strip_frame(text, kind) == rest


def test_only_slots_that_the_kind_uses_are_read() -> None:
    said = "did bob post 3 links yesterday?"
    assert read_slots("general", said, HERE) == Slots()
    reminder = read_slots("remind", said, HERE)
    assert (reminder.words, reminder.person, reminder.span) == (said[:-1], "bob", ALL_TIME)
    assert read_slots("cancel_reminder", said, HERE) == Slots(number=3)


def test_strange_texts_have_slots() -> None:
    for text in ("", "\0", "🙂" * 500, "a" * 10_000, "remind " * 500, ": : :"):
        read_slots("remind", text, HERE)
