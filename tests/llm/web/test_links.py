"""Where an address ends and the sentence goes on."""

from __future__ import annotations

import pytest

from llm.web.links import address_key, addresses_in, has_address, without_punctuation

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


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("https://A.Example/X?Y=Z", "a.example/X?Y=Z"),
        ("http://a.example/x/#part", "a.example/x"),
        ("a.example", "a.example"),
        ("HTTPS://A.EXAMPLE?Q", "a.example?Q"),
    ],
)
def test_two_addresses_of_one_page_have_one_key(address: str, key: str) -> None:
    assert address_key(address) == key


def test_the_addresses_of_a_text_are_found_with_and_without_a_scheme() -> None:
    found = addresses_in(f"see <{GAME}>, (b.example/x) or [it](https://c.example/y).")
    assert {GAME.removeprefix("https://"), "b.example/x", "c.example/y"} <= found
    assert has_address(f"see <{GAME}>")
    assert not has_address("see b.example/x")
