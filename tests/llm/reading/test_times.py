"""Times as people write them: what is understood, in which zone it is meant, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.reading.times import (
    EXAMPLE_RECURRENCES,
    EXAMPLE_TIMES,
    MAX_DISTANCE,
    NotUnderstood,
    ResolvedTime,
    parse_time,
    without_time,
)
from llm.scheduling.cron_schedule import Timetable
from tests.kit.tables import rows

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)  # a Friday
VIENNA = ZoneInfo("Europe/Vienna")  # two hours ahead
TIMES = [row for row in rows("llm/reading/times.txt") if len(row) == 3]
REFUSED = [row for row in rows("llm/reading/times.txt") if len(row) == 2]


@pytest.mark.parametrize("row", TIMES, ids=" | ".join)
def test_a_time_is_understood_in_the_zone_in_which_it_is_meant(row: Sequence[str]) -> None:
    text, when, rest = row
    told, _, rule = when.partition(" = ")
    due = datetime.fromisoformat(told).replace(tzinfo=VIENNA).astimezone(UTC)
    assert parse_time(text, NOW, VIENNA) == (ResolvedTime(due, rule), rest.strip('"'))
    assert without_time(text) == rest.strip('"')


@pytest.mark.parametrize("row", REFUSED, ids=" | ".join)
def test_what_is_no_time_to_come_is_refused_in_words(row: Sequence[str]) -> None:
    text, why = row
    with pytest.raises(NotUnderstood, match=r"\w{3}.*[.?]") as refusal:
        parse_time(text.strip('"'), NOW, VIENNA)
    assert why.removeprefix("! ") in str(refusal.value)


def test_every_recurrence_that_we_name_is_understood() -> None:
    for form in EXAMPLE_RECURRENCES.split(", "):
        found, rest = parse_time(f"{form} stand up", NOW, VIENNA)
        assert (bool(found.rule), rest) == (True, "stand up"), form


def test_every_form_that_we_name_is_understood() -> None:
    for form in EXAMPLE_TIMES.split(", "):
        assert parse_time(f"{form} go", NOW, UTC)[1] == "go"


def test_a_time_in_the_gap_of_spring_comes_right_after_it() -> None:
    night = datetime(2026, 3, 28, 12, tzinfo=UTC)
    due = parse_time("at 2:30 go", night, VIENNA)[0].due
    assert due == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


_WORDS = (
    "in at on every next 1 20 9999 : - , and half an day days monday weekday hour h m tomorrow"
    " 2026-05-09 9999-12-31 18:00 6 pm noon T to christmas end of the month week 24.12. hundred"
)


_PHRASES = st.lists(st.sampled_from(_WORDS.split(" ")), max_size=8).map(" ".join)


@given(_PHRASES | st.text(max_size=40))
def test_whatever_is_written_a_time_is_to_come_or_refused(text: str) -> None:
    try:
        found, rest = parse_time(text, NOW, VIENNA)
    except NotUnderstood:
        return
    assert NOW < found.due <= NOW + MAX_DISTANCE
    assert found.due.utcoffset() == timedelta()
    assert set(rest.split()) <= set(text.split())
    if found.rule:
        assert Timetable.parse(found.rule, "Europe/Vienna").after(NOW) == found.due
