"""What belongs to prompts alone never stands in an answer."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.messages.message import Message
from llm.parsing.stream_parser import PromptEchoFilter

LINE = "[2026-03-01 12:00:01] <bob> the pump starts at six"
PROMPT: list[Message] = [
    {"role": "user", "content": f"<irc_logs>\n{LINE}\n</irc_logs>\n\nada asks: ?"},
]


def filtered(pieces: list[str], prompt: list[Message] = PROMPT) -> tuple[str, bool]:
    echo = PromptEchoFilter(prompt)
    text = "".join([*map(echo.feed, pieces), echo.finish()])
    return text.strip(), echo.has_ended


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Paris.", "Paris."),
        ("a < b, and 2 << 3\nif x<y: pass", "a < b, and 2 << 3\nif x<y: pass"),
        ("Use <b>bold</b> &lt;p&gt; and <summary>x</summary>.",) * 2,
        ("[1] a list item\n[12:30] is a time", "[1] a list item\n[12:30] is a time"),
        ("Paris.</irc_logs>", "Paris."),
        ("Paris.\n<irc_logs>\n[2019-07-31 14:56:18] <Tom> hi", "Paris."),
        ("Paris.\n&lt;memory>\n<facts>", "Paris."),
        ("</irc_logs>\nParis.", "Paris."),
        ("<irc_logs>\nParis.", "Paris."),
        ("[2019-07-31 14:56:18] <Tom> I'm glad", "I'm glad"),
        ("Yes.\n[2019-07-31 14:56:18] <Tom> I'm glad\nmore", "Yes."),
        ("Yes.\n[14:56] * Tom waves", "Yes."),
        (f"bob said so:\n{LINE}", f"bob said so:\n{LINE}"),
        (LINE, LINE),
    ],
)
def test_an_answer_is_filtered(text: str, shown: str) -> None:
    assert filtered([text])[0] == shown
    assert filtered(list(text))[0] == shown


def test_a_tag_or_a_forged_line_ends_the_answer_and_a_quoted_line_does_not() -> None:
    assert filtered(["Paris. <irc_logs>"])[1]
    assert filtered(["Yes.\n[2019-07-31 14:56:18] <Tom> hi"])[1]
    assert not filtered([f"Yes.\n{LINE}"])[1]
    assert not filtered(["Paris."])[1]


def test_text_goes_on_at_once() -> None:
    echo = PromptEchoFilter()
    assert echo.feed("The capital") == "The capital"
    assert echo.feed(" is <") == " is "
    assert echo.feed("b>") == "<b>"
    assert echo.feed("\n[20") == "\n"
    assert echo.finish() == "[20"


@given(st.text("<>&lt;/irc_logs[]2019-: ab\n", max_size=60), st.data())
def test_any_cut_of_a_stream_gives_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    assert filtered(pieces) == filtered([text])
