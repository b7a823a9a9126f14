"""Claims that code alone refuses."""

from __future__ import annotations

import pytest

from llm.research import Evidence, WrittenClaim, claim_of
from llm.web.reader import excerpt

SOURCE = Evidence("<ada> the pump has 3 valves and cost 120 in 2024", lines=(7,))


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("The pump has 3 valves.", True),
        ("The pump has 5 valves.", False),
        ("It cost 120.", True),
        ("It cost 130.", False),
        ("The pump has valves.", True),
        ("  ", False),
    ],
)
def test_a_claim_with_a_number_that_no_source_has_is_refused(text: str, is_kept: bool) -> None:
    found = claim_of(WrittenClaim(text=text, sources=[1]), [SOURCE])
    assert (found is not None) == is_kept
    assert found is None or found.lines == [7]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the pump\nis here\nrobert", "the pump\nis here"),
        ("the pump " + "a" * 40 + "\nbob", "the pump " + "a" * 11),
        ("the pump\nwas bought in the spring\nbob", "the pump\nbob"),
        ("", ""),
    ],
)
def test_of_a_page_the_paragraphs_that_fit_are_read_and_of_one_long_one_its_beginning(
    text: str, shown: str
) -> None:
    assert excerpt(text, frozenset({"pump"}), 20) == shown
