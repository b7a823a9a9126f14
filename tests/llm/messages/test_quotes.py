"""Quotes are found among the lines that the model was shown, and nowhere else."""

from __future__ import annotations

import pytest

from llm.messages.message import ShownText, quoted_lines

KEY = ShownText("The spare key lies under the green pot by the door.", frozenset({7}), 7)
LINK = ShownText("see https://example.org/a/b", frozenset({8}), 8)
SHORT = ShownText("so it goes", frozenset({9}), 9)
SHOWN = (SHORT, LINK, KEY)


@pytest.mark.parametrize(
    ("answer", "quoted"),
    [
        ("Ada: 'the spare key lies under the green pot'.", {7}),
        ("It was (https://example.org/a/b).", {8}),
        ("the spare key lies under the green pot: https://example.org/a/b", {7, 8}),
        ("so it goes", set()),
        ("It lies under the green pot.", set()),
    ],
)
def test_a_line_is_quoted_with_eight_words_in_a_row_or_with_a_rare_one(
    answer: str, quoted: set[int]
) -> None:
    assert quoted_lines(answer, "where is the key?", SHOWN) == quoted


def test_a_line_of_five_to_seven_words_is_quoted_as_a_whole() -> None:
    line = ShownText("the code is seven four", frozenset({1}), 1)
    assert quoted_lines("She says that the code is seven four.", "hm?", [line]) == {1}
    assert quoted_lines("She says that the code is seven.", "hm?", [line]) == frozenset()


def test_what_stands_in_the_question_is_no_quote() -> None:
    line = ShownText("what is the best way", frozenset({1}), 1)
    asked = "what is the best way to make tea?"
    assert quoted_lines("You ask what is the best way to make tea.", asked, [line]) == frozenset()


def test_words_that_several_have_said_are_quoted_from_the_first() -> None:
    again = ShownText(KEY.text, frozenset({12}), 12)
    assert quoted_lines(KEY.text, "where is it?", [again, KEY]) == {7}
