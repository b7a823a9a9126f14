"""Think blocks are kept apart from the answer, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_server.schemas.chat_answer import Split, ThinkSplitter
from tests.kit.pieces import CUTS, pieces_of

PARTS = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>"),
        *("<<THINK>>", "<</THINK>>", "<Think>", "<<think>", "<think>>", "</think", "<thin"),
        *("<", "<<", ">", ">>", "/", "a < b", "x", "\n", " ", "café", "<b>", "<<TOOL:X>>"),
        *("`", "``", "```", "\n```\n", "~~~\n"),
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


def split(pieces: list[str], *, anywhere: bool) -> Split:
    """The pieces one after another, both sides joined."""
    splitter = ThinkSplitter(anywhere=anywhere)
    parts = [*map(splitter.feed, pieces), splitter.finish()]
    return Split("".join(p.shown for p in parts), "".join(p.thought for p in parts))


@pytest.mark.parametrize("anywhere", [False, True])
@given(TEXTS, CUTS)
@example("a<<think>>b<</think>>c", [])
def test_any_cut_of_a_text_gives_the_same_parts(anywhere: bool, text: str, cuts: list[int]) -> None:
    whole = split([text], anywhere=anywhere)
    assert split(list(text), anywhere=anywhere) == whole
    assert split(pieces_of(text, cuts), anywhere=anywhere) == whole


@pytest.mark.parametrize("anywhere", [False, True])
@given(st.text(alphabet="ab<>/ \n`", max_size=40))
def test_text_without_tags_passes_unchanged(anywhere: bool, text: str) -> None:
    assert split(list(text), anywhere=anywhere) == Split(text)


@given(st.lists(st.tuples(st.text("ab <", max_size=5), st.text("cd <", max_size=5)), max_size=5))
def test_nothing_outside_the_tags_is_lost_and_nothing_inside_is_shown(
    blocks: list[tuple[str, str]],
) -> None:
    text = "".join(f"{shown}.<think>{thought}.</think>" for shown, thought in blocks)
    parts = split(list(text), anywhere=True)
    assert parts.shown == "".join(f"{shown}." for shown, _ in blocks)
    assert parts.thought == "".join(f"{thought}." for _, thought in blocks)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize(
    ("text", "shown", "thought"),
    [
        ("<think>a\nb</think>\n\nhello", "hello", "a\nb"),
        ("<think></think>\n\nhello", "hello", ""),
        ("  <think>a</think>b", "b", "a"),
        ("<think>a</think>\n`<think>b</think>`", "`<think>b</think>`", "a"),
        ("```xml\n<think>a</think>\n```", "```xml\n<think>a</think>\n```", ""),
        ("<<think>>a<</think>>\nb", "b", "a"),
        ("<THINK>hm</thought>yes", "yes", "hm"),
        ("<think>a</think><think>b</think>c", "c", "ab"),
        ("<think>one <think> two</think> yes", " yes", "one <think> two"),
        ("<think>never closed <<TOOL:X>> </b>", "", "never closed <<TOOL:X>> </b>"),
        ("<think>say `</think>no` or `x", "no` or `x", "say `"),
        ("1 < 2 << 3 <thin ice> <t", "1 < 2 << 3 <thin ice> <t", ""),
        ("\n\n  kept as it is\n", "\n\n  kept as it is\n", ""),
        ("ends like a tag <thi", "ends like a tag <thi", ""),
        ("<thi", "<thi", ""),
        ("", "", ""),
    ],
)
def test_the_blocks_that_a_text_begins_with_are_thoughts(
    anywhere: bool, text: str, shown: str, thought: str
) -> None:
    assert split(list(text), anywhere=anywhere) == Split(shown, thought)


@pytest.mark.parametrize(
    ("text", "shown", "thought"),
    [
        ("a<think>hm</think> b<think>so</think> c", "a b c", "hmso"),
        ("yes<think>it never ends </b>", "yes", "it never ends </b>"),
        ("a stray end</think> is dropped", "a stray end is dropped", ""),
        ("the tag `<think>` opens a block", "the tag `<think>` opens a block", ""),
        ("`<think>2+2 is 4</think>` <think>hm</think>so", "`<think>2+2 is 4</think>` so", "hm"),
        ("``` xml\n<think>a</think>\n```\n</think>b", "``` xml\n<think>a</think>\n```\nb", ""),
        ("a ` alone\n<think>hm</think>b", "a ` alone\nb", "hm"),
    ],
)
def test_a_block_within_a_text_is_a_thought_only_where_blocks_count_anywhere(
    text: str, shown: str, thought: str
) -> None:
    assert split(list(text), anywhere=True) == Split(shown, thought)
    assert split(list(text), anywhere=False) == Split(text)


def test_what_cannot_be_a_tag_is_shown_at_once() -> None:
    splitter = ThinkSplitter(anywhere=True)
    assert splitter.feed("a <").shown == "a "
    assert splitter.feed("b").shown == "<b"
    assert splitter.feed("<<think").shown == ""
    assert splitter.feed("y").shown == "<<thinky"
