"""Courtesies have a written answer, and only they."""

from __future__ import annotations

import pytest

from llm.intents.small_talk import CANNOT_TRANSLATE, small_talk_answer


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("thanks!", "You are welcome."),
        ("ok, thank you so much, Terra :)", "You are welcome."),
        ("Hello there", "Hello! Ask me something."),
        ("good morning everyone!", "Hello! Ask me something."),
        ("hi, how are you?", "I am fine, thank you."),
        ("what's up?", "I am fine, thank you."),
        ("good night", "Bye."),
        ("good bot", "Thank you."),
        ("that's right", "Thank you."),
        ("sorry", "No problem."),
        ("danke schön", "You are welcome."),
        ("please translate good morning to French", CANNOT_TRANSLATE),
        ("how do you say cheese in French?", CANNOT_TRANSLATE),
        ("was heißt Käse auf Englisch?", CANNOT_TRANSLATE),
    ],
)
def test_a_courtesy_has_an_answer(said: str, answer: str) -> None:
    assert small_talk_answer(said) == answer


@pytest.mark.parametrize(
    "said",
    [
        "",
        "thanks to whom do we have the telephone?",
        "hello world in Python",
        "how are you made?",
        "what is up with the pump?",
        "what is a good night's sleep?",
        "who is nice here?",
        "who translated the Bible into German?",
        "what is spoken in French Guiana?",
        "how do you say that you are sorry?",
        "right of way at a roundabout",
    ],
)
def test_a_question_has_none(said: str) -> None:
    assert small_talk_answer(said) is None
