"""Cutting texts into lines, and where a cut does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from harnesses.irc.protocol.events import Talk
from harnesses.irc.protocol.message import MIN_BUDGET, ISupport, Source, budget, split, talk

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
CHAT = st.lists(
    st.sampled_from(["word", "é", "\n", " ", "  ", "👩‍🚀", "\r\n", "ü" * 9, "x" * 30])
).map("".join)


def bare(text: str) -> str:
    return "".join(text.split())


@given(TEXT | CHAT, st.integers(MIN_BUDGET, 60))
def test_every_line_fits_none_is_blank_and_nothing_but_white_space_is_lost(
    text: str, size: int
) -> None:
    lines = split(text, size)
    for line in lines:
        assert 0 < len(line.encode()) <= size
        assert line.strip()
        assert not {"\r", "\n"} & set(line)
    assert bare("".join(lines)) == bare(text)


@given(st.lists(st.text("abcé", min_size=1, max_size=8), min_size=1))
def test_words_that_fit_are_never_cut(words: list[str]) -> None:
    assert " ".join(split(" ".join(words), 16)).split(" ") == words


@given(CHAT, st.integers(30, 60))
def test_a_cut_is_never_inside_a_grapheme(text: str, size: int) -> None:
    allowed = set(regex.findall(r"\X", text))
    for line in split(text, size):
        assert set(regex.findall(r"\X", line)) <= allowed


@pytest.mark.parametrize(
    "cluster",
    [
        "é",
        "👩‍🚀",
        "👍🏽",
        "🇩🇪",
        "❤️",
        "각",
        "한",
        "🏴\U000e0067\U000e0062\U000e007f",
        "கா",
        "👨‍👩‍👧‍👦",
    ],
)
def test_what_a_reader_sees_as_one_character_is_one(cluster: str) -> None:
    lines = split(f"a{cluster}{cluster}b", max(MIN_BUDGET, len(cluster.encode())))
    assert "".join(lines) == f"a{cluster}{cluster}b"
    assert {line.replace(cluster, "") for line in lines} <= {"", "a", "b"}


def test_line_breaks_are_line_ends_and_indents_stay() -> None:
    assert split("a:\r\n    b\n\n  \nc  \x1d d", 100) == ["a:", "    b", "c  \x1d d"]


def test_a_tower_of_marks_is_cut_and_what_irc_cannot_carry_does_no_harm() -> None:
    assert "".join(split("e" + "\u0301" * 500, 20)) == "e" + "\u0301" * 500
    assert split("a\0b \ud800", 100) == ["ab ?"]
    with pytest.raises(ValueError, match="4 bytes"):
        split("x", 3)  # less than a character


@pytest.mark.parametrize("kind", get_args(Talk))
@pytest.mark.parametrize("linelen", [512, 1024])
def test_a_full_line_as_others_receive_it_is_exactly_as_long_as_allowed(
    kind: Talk, linelen: int
) -> None:
    me = Source("Terra", "~terra", "a.host.example")
    isupport = ISupport().with_tokens([f"LINELEN={linelen}"])
    text = "x" * budget(isupport, me, kind, "#chän")
    line = replace(talk(kind, "#chän", text), source=me).render() + "\r\n"
    assert len(line.encode()) == linelen


def test_an_unknown_host_counts_as_the_longest() -> None:
    known = budget(ISupport(), Source("Terra", "~u", "h"), "PRIVMSG", "#c")
    unknown = budget(ISupport(), Source("Terra"), "PRIVMSG", "#c")
    assert unknown < known
    assert unknown == 512 - 2 - len(":Terra!@ PRIVMSG #c :") - 11 - 63


@pytest.mark.parametrize("letter", ["漢", "ไ", "a"])
def test_a_word_too_long_for_a_line_fills_the_one_that_has_begun(letter: str) -> None:
    assert split(f"bob: {'漢' * 145}", 437) == ["bob: " + "漢" * 144, "漢"]
    lines = split(f"bob: {letter * 400}", 440)
    assert lines[0].startswith(f"bob: {letter}")
    assert "".join(lines).removeprefix("bob: ") == letter * 400
    assert all(len(line.encode()) > 430 for line in lines[:-1])


def test_an_address_that_fits_on_a_line_stays_whole() -> None:
    address = "https://example.org/" + "x" * 415
    assert split(f"bob: {address}", 437) == ["bob:", address]
    assert len(split(f"bob: {address * 2}", 437)) == 2 + (len(address * 2) + 5 > 874)
