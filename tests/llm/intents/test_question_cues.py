"""What a question refers to, by its words alone."""

from __future__ import annotations

import pytest

from llm.intents.question_text import goes_on, is_about_time


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
