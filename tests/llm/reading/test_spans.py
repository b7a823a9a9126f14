"""Spans of past time in questions, in six languages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.reading.spans import ALL_TIME, time_span
from tests.kit.tables import rows

NOW = datetime(2026, 11, 22, 8, tzinfo=UTC)  # a Sunday
VIENNA = ZoneInfo("Europe/Vienna")


def told(time: datetime | None) -> str:
    return f"{time.astimezone(VIENNA):%Y-%m-%d %H:%M}" if time else "-"


@pytest.mark.parametrize("row", rows("llm/reading/spans.txt"), ids=" | ".join)
def test_a_span_is_read_in_the_zone_in_which_it_is_meant(row: Sequence[str]) -> None:
    text, since, until = row
    span, rest = time_span(text, NOW, VIENNA)
    assert (told(span.since), told(span.until)) == (since, until)
    assert span.words in text
    assert sorted(re.findall(r"\w+", f"{rest} {span.words}")) == sorted(re.findall(r"\w+", text))


def test_the_words_of_a_span_are_taken_out_with_their_comma() -> None:
    span, rest = time_span("who was here, about two days ago?", NOW, VIENNA)
    assert (span.words, span.phrase, rest) == (
        "about two days ago",
        " about two days ago",
        "who was here ?",
    )


_WORDS = "in,since,before,the last,3,9999,days,ago,may,2009,week,vor,il y a,hace,on,friday"
_PHRASES = st.lists(st.sampled_from(_WORDS.split(",")), max_size=7).map(" ".join)


@given(st.text(max_size=60) | _PHRASES)
def test_nothing_that_people_write_is_an_error(text: str) -> None:
    span, rest = time_span(text, NOW, VIENNA)
    assert span or (span, rest) == (ALL_TIME, text)
