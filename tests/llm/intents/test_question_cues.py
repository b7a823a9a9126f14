"""What a question refers to, by its words alone."""

from __future__ import annotations

import pytest

from llm.intents.question_text import (
    asks_how,
    goes_on,
    is_about_talk,
    is_about_time,
    is_foreign,
)


@pytest.mark.parametrize(
    "text",
    [
        "and in winter?",
        "what about spain?",
        "no, the other one",
        "how old is he?",
        "why?",
        "who wrote it?",
        "translate that to german",
        "tell me more",
        "is the second one better?",
        "und im Winter?",
        "are you sure?",
    ],
)
def test_it_goes_on_from_the_one_before(text: str) -> None:
    assert goes_on(text)


@pytest.mark.parametrize(
    "text",
    [
        "what is the capital of France?",
        "what time is it in Tokyo?",
        "is it true that cats always land on their feet?",
        "how many legs does a spider have?",
        "android or iphone?",
        "what is 12 * 34?",
        "remind me in 20 minutes to check the oven",
        "who wrote the novel that won the prize in 1984 and was made into a film after that year?",
    ],
)
def test_it_stands_by_itself(text: str) -> None:
    assert not goes_on(text)


def test_it_is_about_time() -> None:
    assert is_about_time("what day is it today?")
    assert is_about_time("how old is the moon?")
    assert not is_about_time("what is the capital of France?")


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("how do I make tea?", True),
        ("please tell me how to cook rice", True),
        ("can you explain to me how to tie a tie?", True),
        ("how does a fridge work?", True),
        ("wie kann ich Reis kochen?", True),
        ("how many legs does a spider have?", False),
        ("how old is the moon?", False),
        ("explain gravity", False),
        ("tell me a story about a fox who learned how to swim", False),
    ],
)
def test_it_asks_how(text: str, how: bool) -> None:
    assert asks_how(text) is how


@pytest.mark.parametrize(
    "text",
    [
        "what did we just talk about?",
        "what were they arguing about",
        "what have people been saying?",
        "what did I miss?",
        "what happened while I was away?",
        "can you summarize this channel please",
        "give me a summary of the chat",
        "what was the last topic?",
        "anything new?",
        "worum geht es hier?",
    ],
)
def test_it_is_about_the_current_talk(text: str) -> None:
    assert is_about_talk(text)


@pytest.mark.parametrize(
    "text",
    [
        "what happened in the year 1989?",
        "what is the topic of the talk on friday?",
        "summarize the french revolution",
        "what's new in python 3.13?",
        "what did bob say about the heating?",
        "what did we decide about the roof?",
    ],
)
def test_it_is_about_something_else(text: str) -> None:
    assert not is_about_talk(text)


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("ist hier jemand, der Deutsch spricht?", True),
        ("was ist die Hauptstadt von Frankreich?", True),
        ("qui a écrit Les Misérables ?", True),
        ("¿cuál es la capital de Perú?", True),
        ("hoe laat is het?", True),
        ("столица России?", True),
        ("日本の首都は？", True),
        ("who sang la vie en rose?", False),
        ("is Das Boot a film?", False),
        ("was there a decision on the logo", False),
        ("capital of La Rioja", False),
        ("5 km", False),
        ("?", False),
    ],
)
def test_it_is_not_in_english(text: str, foreign: bool) -> None:
    assert is_foreign(text) is foreign
