"""Which questions only people here can answer, judged by their words."""

from __future__ import annotations

import pytest

from llm.intents.question_text import is_local


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
        "is the printer working again?",
        "when is the next meetup?",
        "who lost an umbrella?",
        "is dinner ready yet?",
        "what's the password for the router?",
        "who has the key to the shed?",
        "why is the heating off in room 204?",
        "what time does the bus leave on friday?",
        "what is the date of the party?",
        "how much money may we spend in july?",
        "which bird did our cat catch?",
        "who can lend me a ladder?",
        "did anyone lose an umbrella?",
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
        "what is the boiling point of water in fahrenheit?",
        "what is the plot of hamlet?",
        "who is the ceo of apple?",
        "what is the linux command to list files?",
        "how do I list the files in a directory?",
        "what did the romans eat?",
        "who won the second world war?",
        "how many strings does the violin have?",
        "when did the Titanic sink?",
        "what does the heart do?",
        "what gas do we need to breathe?",
        "what planet has the big rings?",
    ],
)
def test_questions_about_the_world_are_not(question: str) -> None:
    assert not is_local(question, ["mira"])
