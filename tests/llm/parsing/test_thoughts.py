"""Think blocks are kept apart from the answer, however the stream is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llm.parsing.thoughts import ThoughtFilter
from terrarium.thinking import Split

PARTS = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "</thinking>", "<thought>", "</thought>"),
        *("<<THINK>>", "<</THINK>>", "<Think>", "<<think>", "<think>>", "</think", "<thin"),
        *("<", "<<", ">", ">>", "/", "a < b", "x", "\n", " ", "café", "<b>", "<<TOOL:X>>"),
        *("`", "``", "```", "\n```\n", "~~~\n"),
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


def streamed(pieces: list[str]) -> Split:
    """The pieces one after another, both sides joined."""
    splitter = ThoughtFilter()
    parted = [*map(splitter.feed, pieces), splitter.finish()]
    return Split("".join(p.shown for p in parted), "".join(p.thought for p in parted))


@given(TEXTS, st.data())
@example("a<<think>>b<</think>>c", None)
def test_any_cut_of_a_text_gives_the_same_parts(text: str, data: st.DataObject | None) -> None:
    whole = streamed([text])
    assert streamed(list(text)) == whole
    if data:
        places = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
        cuts = [0, *places, len(text)]
        pieces = [text[a:b] for a, b in itertools.pairwise(cuts)]
        assert streamed(pieces) == whole


@given(st.text(alphabet="ab<>/ \n", max_size=40))
def test_text_without_tags_passes_unchanged(text: str) -> None:
    assert streamed(list(text)) == Split(shown=text)


@given(st.lists(st.tuples(st.text("ab <", max_size=5), st.text("cd <", max_size=5)), max_size=5))
def test_nothing_outside_the_tags_is_lost_and_nothing_inside_is_shown(
    blocks: list[tuple[str, str]],
) -> None:
    text = "".join(f"{shown}.<think>{thought}.</think>" for shown, thought in blocks)
    parted = streamed(list(text))
    assert parted.shown == "".join(f"{shown}." for shown, _ in blocks)
    assert parted.thought == "".join(f"{thought}." for _, thought in blocks)


@pytest.mark.parametrize(
    ("text", "shown", "thought"),
    [
        ("<think>hm</think>yes", "yes", "hm"),
        ("<thinking>hm</thinking>yes", "yes", "hm"),
        ("<thought>hm</thought>yes", "yes", "hm"),
        ("<<THINK>>hm<</THINK>>yes", "yes", "hm"),
        ("<THINK>hm</think>yes", "yes", "hm"),
        ("a<think>hm</think> b<think>so</think> c", "a b c", "hmso"),
        ("yes<think>it never ends <<TOOL:X>> </b>", "yes", "it never ends <<TOOL:X>> </b>"),
        ("<think>one <think> two</think> yes", " yes", "one <think> two"),
        ("a stray end</think> is dropped", "a stray end is dropped", ""),
        ("1 < 2 << 3 <thin ice> <t", "1 < 2 << 3 <thin ice> <t", ""),
        ("the tag `<think>` opens a block", "the tag `<think>` opens a block", ""),
        ("`<think>2+2 is 4</think>` <think>hm</think>so", "`<think>2+2 is 4</think>` so", "hm"),
        ("``` xml\n<think>a</think>\n```\n</think>b", "``` xml\n<think>a</think>\n```\nb", ""),
        ("<think>say `</think>no` or `x</think>yes", "no` or `xyes", "say `"),
        ("a ` alone\n<think>hm</think>b", "a ` alone\nb", "hm"),
        ("", "", ""),
    ],
)
def test_a_text_is_parted(text: str, shown: str, thought: str) -> None:
    assert streamed([text]) == Split(shown, thought)


def test_what_cannot_be_a_tag_is_shown_at_once() -> None:
    splitter = ThoughtFilter()
    assert splitter.feed("a <").shown == "a "
    assert splitter.feed("b").shown == "<b"
    assert splitter.feed("<<think").shown == ""
    assert splitter.feed("y").shown == "<<thinky"
