"""Who answers a question in place of a tiny model, and what that is asked for."""

from __future__ import annotations

import pytest

from llm.answerers.answerers import (
    CANNOT,
    COURTESIES,
    NO_REMINDERS,
    NO_TIME,
    ONLY_ENGLISH,
    SELF,
    TAKEN_NOTE,
    TOO_SMALL,
    AskedQuestion,
    first_answer,
)
from llm.client.profile import CAPABLE, SMALL, TINY
from llm.reading.reading import Reading, Slots


async def answered(reading: Reading, asked: AskedQuestion) -> tuple[str, str]:
    found = await first_answer(reading, asked)
    return (found.text, found.by) if found else ("", "")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("general", ""),
        ("howto", TOO_SMALL),
        ("creative", TOO_SMALL),
        ("live", TOO_SMALL),
        ("follow_up", ""),
        ("talk", TOO_SMALL),  # no log is searched here
        ("local", TOO_SMALL),
        ("about_bot", SELF),
        ("order", CANNOT),
        ("tell", CANNOT),
        ("statement", TAKEN_NOTE),
    ],
)
async def test_a_tiny_model_is_asked_for_general_knowledge_and_what_follows_up(
    kind: str, text: str
) -> None:
    found, by = await answered(Reading("x", {kind: 0.8}), AskedQuestion(profile=TINY))
    assert (found, by) == (text, "honest" if text else "")


async def test_a_reminder_that_nobody_set_lacks_a_time_or_is_not_possible_here() -> None:
    asked = AskedQuestion(profile=TINY)
    for words, text in (("to stretch", NO_TIME), ("in 10 minutes to stretch", NO_REMINDERS)):
        reading = Reading("x", {"remind": 0.9}, slots=Slots(words=words))
        assert await answered(reading, asked) == (text, "honest")


async def test_small_talk_is_answered_by_its_kind() -> None:
    for courtesy, text in COURTESIES.items():
        reading = Reading("x", {"small_talk": 0.9}, courtesies={courtesy: 0.9})
        assert await answered(reading, AskedQuestion(profile=TINY)) == (text, "honest")


async def test_a_statement_of_joy_or_sorrow_is_answered_if_it_surely_is_one() -> None:
    for courtesy, share, text in (
        ("sad", 0.8, COURTESIES["sad"]),
        ("glad", 0.5, TAKEN_NOTE),
        ("praise", 0.9, TAKEN_NOTE),
    ):
        reading = Reading("x", {"statement": 0.9}, courtesies={courtesy: share})
        assert await answered(reading, AskedQuestion(profile=TINY)) == (text, "honest")


async def test_what_may_be_small_talk_or_a_statement_is_not_taken_for_a_question() -> None:
    reading = Reading("my tooth hurts :(", {"small_talk": 0.49, "statement": 0.47, "text": 0.04})
    assert await answered(reading, AskedQuestion(profile=TINY)) == (TAKEN_NOTE, "honest")


async def test_a_question_in_another_language_is_not_for_a_tiny_model() -> None:
    reading = Reading("quién?", {"general": 0.9}, {"es": 0.95, "en": 0.05})
    assert await answered(reading, AskedQuestion(profile=TINY)) == (ONLY_ENGLISH, "honest")


async def test_an_unread_question_and_larger_models_are_left_to_the_model() -> None:
    assert await answered(Reading("x"), AskedQuestion(profile=TINY)) == ("", "")
    for profile in (SMALL, CAPABLE):
        for kind in ("howto", "small_talk", "order"):
            asked = AskedQuestion(profile=profile)
            assert await answered(Reading("x", {kind: 0.9}), asked) == ("", "")


async def test_what_a_skill_has_worked_out_comes_first() -> None:
    asked = AskedQuestion(profile=CAPABLE, worked_out="6")
    assert await answered(Reading("2*3", {"general": 0.9}), asked) == ("6", "skill")
