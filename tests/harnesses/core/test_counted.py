"""Numbers with their noun."""

from __future__ import annotations

from harnesses.core.counted import counted


def test_one_of_a_thing_is_said_in_the_singular() -> None:
    assert counted(1, "reminder") == "1 reminder"
    assert counted(0, "reminder") == "0 reminders"
    assert counted(1_200, "line") == "1,200 lines"
    assert counted(1, "person", "people") == "1 person"
    assert counted(2, "person", "people") == "2 people"
