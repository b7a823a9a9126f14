"""Counts for people, and text from others on a terminal."""

from __future__ import annotations

from harnesses.core.text import counted, strip_control_chars


def test_nothing_can_command_a_terminal_and_words_of_any_script_stay_as_they_are() -> None:
    assert strip_control_chars("\x1b]0;owned\x07 \x9b2J \udcff \r") == "�]0;owned� �2J � �"
    assert strip_control_chars("héllo\tмир\n日本 🌱") == "héllo\tмир\n日本 🌱"


def test_one_of_a_thing_is_said_in_the_singular() -> None:
    assert counted(1, "reminder") == "1 reminder"
    assert counted(0, "reminder") == "0 reminders"
    assert counted(1_200, "line") == "1,200 lines"
    assert counted(1, "person", "people") == "1 person"
    assert counted(2, "person", "people") == "2 people"
