"""Quotes of log lines are found in answers; sections of a prompt keep their names and ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.messages.message import PromptSection, ShownText, quoted_lines, within

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


LIKES = "ada likes tea\nbob likes soup"


@pytest.mark.parametrize(
    ("text", "budget", "shown"),
    [
        (f"{LIKES}\n", 100, f"<facts>\n{LIKES}\n</facts>"),
        (" \n", 100, ""),
        ("a", 9, "<facts>\na\n</facts>"),
        (f"{LIKES}\neve likes nothing", 44, f"<facts>\n{LIKES}\n...[truncated]\n</facts>"),
        ("x" * 99, 20, "<facts>\nxxxxx\n...[truncated]\n</facts>"),
    ],
)
def test_a_section_has_whole_lines_if_it_can_between_its_tags(
    text: str, budget: int, shown: str
) -> None:
    assert str(PromptSection("facts", text, budget)) == shown


@given(st.text(alphabet="ab\n ", max_size=60), st.integers(0, 60))
def test_a_budget_is_kept_and_what_is_shown_is_the_beginning(text: str, budget: int) -> None:
    shown = (
        str(PromptSection("notes", text, budget))
        .removeprefix("<notes>\n")
        .removesuffix("\n</notes>")
    )
    assert len(shown) <= budget
    assert text.strip().startswith(shown.removesuffix("...[truncated]").removesuffix("\n"))


def test_a_name_that_could_be_forged_is_refused() -> None:
    with pytest.raises(ValueError, match="fruit"):
        PromptSection("fruit", "apples", 100)


def test_sections_share_a_budget_by_their_lengths() -> None:
    facts, notes = PromptSection("facts", "f" * 60, 100), PromptSection("notes", "n" * 300, 120)
    assert within([facts, notes], 180) == [facts, notes]
    assert [section.budget for section in within([facts, notes], 90)] == [30, 60]
