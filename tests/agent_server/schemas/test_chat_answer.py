"""Answers on their way from an engine to a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_server.schemas.chat_answer import (
    ChunkMeta,
    ChunkNormalizer,
    ModelAnswer,
    Split,
    ThinkSplitter,
    assemble,
)
from tests.kit.pieces import CUTS, pieces_of


class Engine:
    """A generator of chunks, and whether it was closed."""

    def __init__(self, *chunks: dict[str, Any]) -> None:
        self.chunks = chunks
        self.is_closed = False

    async def chat(self) -> AsyncGenerator[dict[str, Any], None]:
        try:
            for chunk in self.chunks:
                yield chunk
        finally:
            self.is_closed = True


def said(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def test_a_chunk_keeps_what_the_api_has_and_nothing_else() -> None:
    chunk = {
        "id": "engine-1",
        "timings": {"prompt_n": 3},
        "choices": [{"delta": {"content": "Hi"}, "token_ids": [1], "finish_reason": None}],
    }
    assert ChunkNormalizer(thoughts=True).feed(chunk) == said("Hi")


def test_thoughts_of_a_chat_are_moved_and_those_of_a_bare_text_stay() -> None:
    chat, text = ChunkNormalizer(thoughts=True), ChunkNormalizer(thoughts=False)
    moved = chat.feed(said("<think>hm</think>Hi", "stop"))
    assert moved["choices"][0]["delta"] == {"content": "Hi", "reasoning_content": "hm"}
    kept = text.feed({"choices": [{"text": "<think>hm"}]})
    assert kept == said("<think>hm")


def deltas(*parts: dict[str, Any]) -> tuple[str, str]:
    """The words and the thoughts of an answer whose chunks have these deltas."""
    normalizer, text, thoughts = ChunkNormalizer(thoughts=True), "", ""
    for number, part in enumerate(parts, 1):
        finish = "stop" if number == len(parts) else None
        made = normalizer.feed({"choices": [{"index": 0, "delta": part, "finish_reason": finish}]})
        delta = made["choices"][0]["delta"]
        assert "reasoning" not in delta
        text += delta.get("content") or ""
        thoughts += delta.get("reasoning_content") or ""
    return text, thoughts


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_where_the_engine_separates_thoughts_the_text_stays_as_it_is(key: str) -> None:
    text = "<think>2+2 is 4</think> is how it looks."
    assert deltas({key: "h"}, {key: "m"}, {"content": text}) == (text, "hm")
    assert deltas({key: "hm", "content": text}) == (text, "hm")
    assert deltas({"content": ""}, {"content": "<th"}, {key: "hm"}, {"content": "is>"}) == (
        "<this>",
        "hm",
    )


def test_thoughts_that_an_engine_sends_under_both_names_count_once() -> None:
    assert deltas({"reasoning": "hm", "reasoning_content": "hm"}, {"content": "Hi"}) == ("Hi", "hm")
    assert deltas({"reasoning": None, "content": "<think>hm</think>Hi"}) == ("Hi", "hm")


async def test_an_answer_begins_with_the_chunk_that_was_awaited() -> None:
    engine = Engine(said("one"), said("two"))
    answer = await ModelAnswer.start("terra", engine.chat())
    assert [chunk async for chunk in answer] == [said("one"), said("two")]
    assert engine.is_closed
    # Closing an answer stops its generation.
    engine = Engine(said("one"), said("two"))
    async with aclosing(await ModelAnswer.start("terra", engine.chat())):
        assert not engine.is_closed
    assert engine.is_closed


async def test_an_answer_is_assembled_under_its_model_and_id() -> None:
    chunks = (said("one "), said("two", "stop"), {"choices": [], "usage": usage(1, 2)})
    answer = await ModelAnswer.start("terra", Engine(*chunks).chat())
    whole = await assemble(answer, ChunkMeta(answer.model, 7, "chatcmpl-1"))
    assert (whole["id"], whole["created"], whole["model"]) == ("chatcmpl-1", 7, "terra")
    assert whole["choices"][0]["message"]["content"] == "one two"
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["usage"] == usage(1, 2)


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
def test_nothing_outside_tags_is_lost_nor_inside_is_shown(blocks: list[tuple[str, str]]) -> None:
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
