"""When jobs are due: expressions, zones, clock changes, missed times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm.scheduling.cron_schedule import Timetable
from tests.kit.tables import rows

VIENNA = "Europe/Vienna"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(table: Timetable, start: datetime, end: datetime) -> list[datetime]:
    """Every time that is due between two times."""
    found: list[datetime] = []
    while (start := table.after(start)) < end:
        found.append(start)
    return found


def test_a_time_is_meant_in_the_zone_of_the_job() -> None:
    table = Timetable.parse("0 9 * * *", VIENNA)
    assert table.after(at("2026-07-01T00:00")) == at("2026-07-01T07:00")
    assert table.after(at("2026-12-01T00:00")) == at("2026-12-01T08:00")


@pytest.mark.parametrize(
    ("expression", "zone", "start", "end", "due"),
    [
        ("0 9 * * *; 30 17 * * *", "UTC", "2026-07-01T00:00", "2026-07-02T00:00", "09:00 17:30"),
        # The night when the clock is put back runs a job once, and in both hours if it is of each.
        ("30 2 * * *", VIENNA, "2026-10-24T12:00", "2026-10-25T12:00", "00:30"),
        ("*/30 * * * *", VIENNA, "2026-10-25T00:00", "2026-10-25T02:00", "00:30 01:00 01:30"),
        # The night when it is put forward runs a job after the gap.
        ("30 2 * * *", VIENNA, "2026-03-28T12:00", "2026-03-29T12:00", "01:00"),
    ],
)
def test_each_expression_is_due_at_its_times_also_when_the_clock_changes(
    expression: str, zone: str, start: str, end: str, due: str
) -> None:
    found = runs(Timetable.parse(expression, zone), at(start), at(end))
    assert " ".join(f"{time:%H:%M}" for time in found) == due


@pytest.mark.parametrize(
    ("expression", "zone", "last", "now", "due"),
    [
        # Of several missed times only the newest is due.
        ("*/5 * * * *", "UTC", "2026-05-01T00:00", "2026-05-04T10:07:30", "2026-05-04T10:05"),
        ("0 9 * * *; 30 17 * * *", "UTC", "2026-06-01T09", "2026-07-01T18:00", "2026-07-01T17:30"),
        ("0 9 * * *", "UTC", "2026-05-01T09:00", "2026-05-02T09:00", "2026-05-02T09:00"),
        # Nothing missed means the time to come, also between the two half past twos.
        ("0 9 * * MON", "UTC", "2026-05-04T09:00", "2026-05-05T00:00", "2026-05-11T09:00"),
        ("30 2 * * *", VIENNA, "2026-10-25T00:30", "2026-10-25T01:31", "2026-10-26T01:30"),
    ],
)
def test_what_is_due_after_a_pause_is_the_newest_time_missed_or_else_the_next(
    expression: str, zone: str, last: str, now: str, due: str
) -> None:
    assert Timetable.parse(expression, zone).due(at(last), now=at(now)) == at(due)


def test_a_first_start_in_the_second_half_past_two_looks_only_ahead() -> None:
    table = Timetable.parse("45 2 * * *", VIENNA)
    start = at("2026-10-25T01:31")
    assert table.after(start) > start


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["30 2 * * *", "*/20 1-4 * * *", "15 * * * *", "0 3 * * SUN", "59 23 L * *"]),
    st.sampled_from([VIENNA, "UTC", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(0, 270 * 24 * 60),
    st.integers(0, 40 * 24 * 60),
)
def test_what_is_due_is_always_a_time_of_the_table_and_later_than_the_last(
    expression: str, zone: str, start: int, away: int
) -> None:
    table = Timetable.parse(expression, zone)
    last = at("2026-03-01T00:00") + timedelta(minutes=start)
    now = last + timedelta(minutes=away)
    due = table.due(last, now)
    assert due in runs(table, last, due + timedelta(seconds=1))
    assert (due <= now) == (table.after(last) <= now)
    if zone == "UTC":
        assert table.after(due) > now


WRONG = rows("llm/scheduling/wrong_schedules.txt")


@pytest.mark.parametrize(("expression", "zone", "words"), WRONG)
def test_what_is_wrong_with_a_schedule_is_said(expression: str, zone: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Timetable.parse(expression, zone)
