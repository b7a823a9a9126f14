"""HTML entities of small models become characters, except in code and where they are quoted."""

from __future__ import annotations

import pytest

from llm.messages.message import Message
from llm.parsing.html_entities import HtmlEntityDecoder
from llm.parsing.stream_parser import StreamParser

LINE = "[2026-03-01 12:00:01] <bob> write &quot; for a quote"
PROMPT: list[Message] = [
    {"role": "user", "content": f"<irc_logs>\n{LINE}\n</irc_logs>\n\nada asks: ?"},
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It&#39;s Tom &amp; Ann.", "It's Tom & Ann."),
        ("3 &lt; 4&#x2C; &eacute;&nbsp;&hellip;", "3 < 4, é …"),
        ("R&D, AT&T; a & b; x &unknown; y &", "R&D, AT&T; a & b; x &unknown; y &"),
        ("&amp;lt; stays a step away", "&lt; stays a step away"),
        ("&#7;&#10;&#8203;&#0;", "&#7;&#10;&#8203;\ufffd"),
        (LINE, LINE),
    ],
)
def test_entities_become_characters(text: str, shown: str) -> None:
    for pieces in ([text], list(text)):
        decoder = HtmlEntityDecoder(PROMPT)
        assert "".join([*map(decoder.feed, pieces), decoder.finish()]) == shown


def test_text_goes_on_at_once() -> None:
    decoder = HtmlEntityDecoder()
    assert decoder.feed("Tom ") == "Tom "
    assert decoder.feed("& Ann &am") == "& Ann "
    assert decoder.feed("p; Bo") == "& Bo"


def test_an_answer_is_decoded_only_for_a_model_that_needs_it() -> None:
    shown = []
    for decode in (True, False):
        parser = StreamParser((), PROMPT, repairs=True, decode_entities=decode)
        shown.append(parser.feed("It&#39;s.") + parser.finish())
    assert shown == ["It's.", "It&#39;s."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Write `&amp;` for &amp;.", "Write `&amp;` for &."),
        ("``a ` &amp;`` &amp;", "``a ` &amp;`` &"),
        ("```html\n<b>&amp;</b>\n\n&amp;\n```\n&amp;", "```html\n<b>&amp;</b>\n\n&amp;\n```\n&"),
        ("a ` alone\n&amp;", "a ` alone\n&"),
    ],
)
def test_entities_in_code_stay(text: str, shown: str) -> None:
    for pieces in ([text], list(text)):
        parser = StreamParser((), PROMPT, repairs=True, decode_entities=True)
        assert "".join([*map(parser.feed, pieces), parser.finish()]) == shown


def test_an_encoded_log_line_is_a_forged_line_all_the_same() -> None:
    parser = StreamParser((), PROMPT, repairs=True, decode_entities=True)
    parser.feed("Yes.\n[14:56] &lt;Tom&gt; I&#39;m glad\nmore")
    parser.finish()
    assert parser.shown.strip() == "Yes."
