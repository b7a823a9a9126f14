"""Text from others on a terminal."""

from __future__ import annotations

from harnesses.core.terminal import strip_control_chars


def test_escape_sequences_and_raw_bytes_cannot_command_a_terminal() -> None:
    assert strip_control_chars("\x1b]0;owned\x07 \x9b2J \udcff \r") == "�]0;owned� �2J � �"


def test_words_of_any_script_and_lines_stay_as_they_are() -> None:
    assert strip_control_chars("héllo\tмир\n日本 🌱") == "héllo\tмир\n日本 🌱"
