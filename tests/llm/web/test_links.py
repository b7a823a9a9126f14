"""Where an address ends and the sentence goes on."""

from __future__ import annotations

import pytest

from llm.web.links import without_punctuation

GAME = "https://en.wikipedia.org/wiki/Rust_(game)"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (GAME, GAME),
        (f"{GAME}).", GAME),
        (f"{GAME}, ", f"{GAME}, "),
        ("http://a.example/x).", "http://a.example/x"),
        ("http://[2001:db8::1]", "http://[2001:db8::1]"),
        ("http://a.example/x]}'\"?!", "http://a.example/x"),
        ("...", ""),
        ("http://a.example/x(y)" + "])}" * 20_000, "http://a.example/x(y)"),
    ],
)
def test_the_end_of_a_sentence_comes_off_and_a_bracket_of_the_address_stays(
    text: str, address: str
) -> None:
    assert without_punctuation(text) == address
