"""Answers on their way from an engine to a client."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from agent_server.schemas.chat_answer import ChunkMeta, ChunkNormalizer, ModelAnswer, assemble


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


async def test_closing_an_answer_stops_its_generation() -> None:
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
