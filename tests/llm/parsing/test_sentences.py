"""An answer ends after so many sentences, whatever way its stream is cut."""

from __future__ import annotations

import pytest

from llm.parsing.stream_parser import AnswerLimit, SentenceLimit


@pytest.mark.parametrize(
    ("text", "one", "two"),
    [
        ("Paris.", "Paris.", "Paris."),
        ("Paris. It is big. Very.", "Paris.", "Paris. It is big."),
        (
            "It has 3.5 million, e.g. Bob. Yes.",
            "It has 3.5 million, e.g. Bob.",
            "It has 3.5 million, e.g. Bob. Yes.",
        ),
        ('"Slow." Or so.', '"Slow."', '"Slow." Or so.'),
        ("Dr. Who wrote it! Really?", "Dr. Who wrote it!", "Dr. Who wrote it! Really?"),
        ("No end", "No end", "No end"),
        ("A list\n\nfollows. More", "A list", "A list\n\nfollows."),
        ("1. One thing. Two", "1. One thing.", "1. One thing. Two"),
        (
            "Do this:\n\n1. Boil it.\n2. Drink it. Well.",
            "Do this:\n\n1. Boil it.",
            "Do this:\n\n1. Boil it.\n2. Drink it.",
        ),
        (
            "**Steps:**\n\nBoil it. Or not.",
            "**Steps:**\n\nBoil it.",
            "**Steps:**\n\nBoil it. Or not.",
        ),
        (
            "So:\n\n```\na = 1. # x! y\n\nb\n```\n\nThat is it. Yes.",
            "So:\n\n```\na = 1. # x! y\n\nb\n```",
            "So:\n\n```\na = 1. # x! y\n\nb\n```\n\nThat is it.",
        ),
    ],
)
def test_it_ends_after_so_many_sentences(text: str, one: str, two: str) -> None:
    for most, wanted in ((1, one), (2, two), (None, text)):
        for pieces in ([text], list(text)):
            limit = SentenceLimit(AnswerLimit(most) if most else None)
            shown = "".join([*map(limit.feed, pieces), limit.finish()])
            assert shown.strip() == wanted


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("The capital is Paris, not Lyon. It is big.", "The capital is Paris."),
        ("The capital of Peru is Lima, which lies by the sea", "The capital of Peru is Lima."),
        ("Red, green and blue are the colours. Yes.", "Red, green and blue are the colours."),
        ("It has a dog, a cat and a bird.", "It has a dog, a cat and a bird."),
        ("In the year 1492, an explorer came.", "In the year 1492, an explorer came."),
        ("Paris, which is big.", "Paris, which is big."),
        ("It was Bell, who else?", "It was Bell."),
        ("The sky is blue, but actually white. Yes.", "The sky is blue."),
        ("It is not a fruit, but a nut. Yes.", "It is not a fruit, but a nut."),
        ("They don't fly, but swim. Yes.", "They don't fly, but swim."),
        ("It takes 3, 4 or 5 days, as it is far.", "It takes 3, 4 or 5 days, as it is far."),
    ],
)
def test_a_clause_that_only_adds_is_left_out(text: str, main: str) -> None:
    for pieces in ([text], list(text)):
        limit = SentenceLimit(AnswerLimit(1, main_clause=True))
        shown = "".join([*map(limit.feed, pieces), limit.finish()])
        assert shown == main
