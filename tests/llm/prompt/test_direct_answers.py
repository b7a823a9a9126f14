"""Which questions only people here can answer, judged by their words."""

from __future__ import annotations

import pytest

from llm.prompt.log_window import is_local


@pytest.mark.parametrize(
    "question",
    [
        "where is the key of the server room?",
        "when will we meet?",
        "who has my umbrella?",
        "what did they decide about the heating?",
        "does mira like tea?",
        "who found the cat?",
        "did anybody find an umbrella?",
        "did someone bring cake?",
    ],
)
def test_questions_about_people_and_things_here_are_local(question: str) -> None:
    assert is_local(question, ["mira"])


@pytest.mark.parametrize(
    "question",
    [
        "who painted the night watch?",
        "who founded the red cross?",
        "who sang the original of that hit?",
        "how old is the french republic?",
        "what is the capital of Peru?",
        "tell me a joke",
        "has anybody ever found a unicorn?",
        "does anyone know how to make tea?",
    ],
)
def test_questions_about_the_world_are_not(question: str) -> None:
    assert not is_local(question, ["mira"])
