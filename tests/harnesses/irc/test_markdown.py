"""Markdown as lines of IRC: what is written out, what stays, and what is code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harnesses.irc.sender import may_change, plain_lines, prose, to_plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**a** and **b c**, 2**3, 2 ** 3 and **kwargs", "a and b c, 2**3, 2 ** 3 and **kwargs"),
        ("*sighs* at `rm *` and __init__", "*sighs* at `rm *` and __init__"),
        ("## Why\nbecause\n---\n#5 is open :-|", "Why\nbecause\n#5 is open :-|"),
        ("[here](https://a.example/x), a[0](1)", "here (https://a.example/x), a[0](1)"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |", "| a | b |\n| 1 | 2 |"),
        ("so:\n```sh\n# **x**\n```\n**y**", "so:\n# **x**\ny"),
        ("~~~~\n```\n~~~\n~~~~\nend", "```\n~~~\nend"),
        ("cut in ```\n```py\nx = [cut off here]", "cut in ```\nx = [cut off here]"),
    ],
)
def test_what_irc_does_not_render_is_written_out(text: str, shown: str) -> None:
    assert to_plain(text) == shown


def test_prose_stands_before_the_first_code_and_after_it() -> None:
    text = "First.\nSecond.\n```\ncode\n```\nThird.\n```\nmore\n```\nFourth."
    assert prose(text) == ("First.\nSecond.", "Third.")
    assert [is_code for _, is_code in plain_lines(text)][:4] == [False, False, True, False]
    assert prose("```\ncode") == ("", "")
    assert prose("```\ncode\n```\nThird.") == ("", "Third.")
    assert prose("First.") == ("First.", "")


def test_an_open_mark_may_still_become_bold_or_a_link() -> None:
    assert may_change("This is **very")
    assert may_change("see [the page")
    assert not may_change("see `x` and *y*")


@given(st.text("ab *_`~#[]()|-\n", max_size=80))
def test_text_without_marks_is_only_shortened(text: str) -> None:
    letters = [character for character in to_plain(text) if character in "ab"]
    assert len(letters) <= sum(character in "ab" for character in text)


@pytest.mark.parametrize("piece", ["#", " ", "**", "**a", "[", "[a](", "`", "~", "|-", "# ", "\n"])
def test_a_long_text_is_soon_done_with(piece: str) -> None:
    to_plain(f"# {piece * 20_000}x")
