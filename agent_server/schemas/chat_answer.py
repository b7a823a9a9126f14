"""Chat answers: the normalised chunks of an engine, and their assembly into one object.

A model's reasoning may be in the text of its answer, in think blocks, where its engine has left it.
A block opens with <think>, <thinking> or <thought>, also in double brackets as <<THINK>>, and
closes with any of these words and a slash; case does not matter. A block that never closes hides
everything after it.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Self

from agent_server.engine_protocol import Chunk, Chunks
from terrarium.markdown_code import CodeSplitter


def has_output(chunk: Chunk) -> bool:
    """Return whether a chunk has more than the role, which some engines send in advance."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("text") or any(value for key, value in delta.items() if key != "role"):
            return True
    return False


_NAMES = "think|thinking|thought"
_OPENING_TAG = re.compile(rf"<(?:{_NAMES})>|<<(?:{_NAMES})>>", re.IGNORECASE)
_CLOSING_TAG = re.compile(rf"</(?:{_NAMES})>|<</(?:{_NAMES})>>", re.IGNORECASE)
_EITHER_TAG = re.compile(f"{_OPENING_TAG.pattern}|{_CLOSING_TAG.pattern}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of text, split into what may be shown and what was thought."""

    shown: str = ""
    thought: str = ""


class ThinkSplitter:
    """Splits a stream of text into think blocks and the rest, however its pieces cut the tags.

    Blanks before a block that the text begins with are dropped, and line breaks after it. In the
    text after that nothing is a tag, as an answer may mention <think>; with `anywhere` a tag is one
    everywhere but in code, and a closing tag without a block is dropped.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self._code = CodeSplitter() if anywhere else None
        self._held = ""
        self._thinking = False
        self._after_block = False
        self._answering = False

    def feed(self, text: str) -> Split:
        """Return the text that is certain now; a possible beginning of a tag is held back."""
        if self._answering and self._code is None:
            return Split(text)
        return self._split(text, is_last=False)

    def finish(self) -> Split:
        """Return what was held back, at the end of the stream."""
        return self._split("", is_last=True)

    def _split(self, text: str, *, is_last: bool) -> Split:
        shown = thought = ""
        while True:
            if self._thinking:
                text, self._held = self._held + text, ""
                certain = _certain_length(text, is_last=is_last)
                closing = _CLOSING_TAG.search(text[:certain])
                if closing is None:
                    self._held = text[certain:]
                    return Split(shown, thought + text[:certain])
                thought, text = thought + text[: closing.start()], text[closing.end() :]
                self._thinking = False
            elif self._answering:
                piece, text = self._answer(text, is_last=is_last)
                shown += piece
                if not self._thinking:
                    return Split(shown, thought)
            else:
                text, self._held = self._held + text, ""
                text = text.lstrip("\n") if self._after_block else text
                begun = text.lstrip()
                if opening := _OPENING_TAG.match(begun):
                    text, self._thinking, self._after_block = begun[opening.end() :], True, True
                elif not is_last and _may_become_tag(begun):
                    self._held = text
                    return Split(shown, thought)
                else:
                    self._answering = True

    def _answer(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """Return the visible part of a text; if a block opens in it, also the text after the
        tag."""
        if self._code is None:
            return text, ""
        segments = self._code.feed(text) + (self._code.finish() if is_last else [])
        shown = ""
        for index, segment in enumerate(segments):
            if segment.is_code:
                shown, self._held = shown + self._held + segment.text, ""
                continue
            prose, self._held = self._held + segment.text, ""
            while tag := _EITHER_TAG.search(prose[: _certain_length(prose, is_last=is_last)]):
                shown, prose = shown + prose[: tag.start()], prose[tag.end() :]
                if _OPENING_TAG.fullmatch(tag[0]):
                    self._thinking = True
                    later = "".join(each.text for each in segments[index + 1 :])
                    return shown, prose + later + self._code.take_held()
            certain = _certain_length(prose, is_last=is_last)
            shown, self._held = shown + prose[:certain], prose[certain:]
        if is_last:
            shown, self._held = shown + self._held, ""
        return shown, ""


def _certain_length(text: str, *, is_last: bool) -> int:
    """Return how many characters at the beginning of `text` are in no incomplete tag at its end;
    all of them if it `is_last`."""
    # `<<think>` is incomplete, although it has a whole `<think>`: another `>` may follow.
    start = -1 if is_last else text.find("<", max(0, len(text) - _MAX_TAG_LENGTH))
    while start >= 0:
        if _may_become_tag(text[start:]):
            return start
        start = text.find("<", start + 1)
    return len(text)


def _may_become_tag(text: str) -> bool:
    """Return whether a text is empty or a proper prefix of a tag."""
    return not text or text.lower() in _PREFIXES


_TAGS = [
    f"{a}{slash}{name}{b}"
    for a, b in (("<", ">"), ("<<", ">>"))
    for slash in ("", "/")
    for name in _NAMES.split("|")
]
_MAX_TAG_LENGTH = max(map(len, _TAGS))
_PREFIXES = {tag[:length] for tag in _TAGS for length in range(1, len(tag))}


class ChunkNormalizer:
    """Normalises the chunks of one answer of an engine.

    A normalised chunk has `choices`, each with `index`, `delta`, `finish_reason` and at most
    `logprobs` and `stop_reason`. With `thoughts`, reasoning is in `reasoning_content`, whatever the
    engine calls it; of an engine that has not separated it, <think> blocks at the beginning of
    `content` are moved there, or `anywhere` in it but in code.
    """

    def __init__(self, *, thoughts: bool, anywhere: bool = False) -> None:
        self._thoughts = thoughts
        # None: the engine separates the thoughts of this choice.
        self._splitters = defaultdict[int, ThinkSplitter | None](
            lambda: ThinkSplitter(anywhere=anywhere)
        )

    def feed(self, chunk: Chunk) -> Chunk:
        """Return the normalised form of a chunk with choices."""
        choices = []
        for choice in chunk["choices"]:
            index, delta = choice.get("index") or 0, choice.get("delta") or {}
            if "text" in choice:  # the continuation of a bare text
                delta = {"content": choice["text"] or ""}
            if self._thoughts:
                self._move_thoughts(index, choice, delta)
            kept = {"index": index, "delta": delta, "finish_reason": choice.get("finish_reason")}
            if choice.get("logprobs"):
                kept["logprobs"] = choice["logprobs"]
            # vLLM's name for the stop sequence that it met.
            if kept["finish_reason"] and isinstance(choice.get("stop_reason"), str):
                kept["stop_reason"] = choice["stop_reason"]
            choices.append(kept)
        return {"choices": choices}

    def _move_thoughts(self, index: int, choice: Chunk, delta: dict[str, Any]) -> None:
        """Move the thoughts of `delta` to `reasoning_content`, in place."""
        # OpenRouter, Ollama and newer versions of vLLM call it `reasoning`; some send both.
        own = delta.pop("reasoning", None)
        if own and not delta.get("reasoning_content"):
            delta["reasoning_content"] = own
        splitter = self._splitters[index]
        if splitter is None:
            return
        text, is_separated = delta.get("content") or "", bool(delta.get("reasoning_content"))
        split = Split() if is_separated else splitter.feed(text)
        content, reasoning = split.shown, split.thought
        # What is held back as a possible tag is due: the text ends, or is left alone from here on.
        if is_separated or choice.get("finish_reason") or delta.get("tool_calls"):
            rest = splitter.finish()
            content, reasoning = content + rest.shown, reasoning + rest.thought
        if is_separated:
            content, self._splitters[index] = content + text, None
        if text or content:
            delta["content"] = content
        if reasoning:
            delta["reasoning_content"] = (delta.get("reasoning_content") or "") + reasoning


class ModelAnswer:
    """An answer of `model` that has begun: an asynchronous iterator of normalised chunks.

    The last chunk has the usage and no choices. Closing the answer stops the generation.
    """

    def __init__(self, model: str, first: Chunk, rest: Chunks) -> None:
        self.model = model
        self._first: Chunk | None = first
        self._rest = rest

    @classmethod
    async def start(cls, model: str, chunks: Chunks) -> ModelAnswer:
        """Wait for the first chunk; there is one. Raises ApiError."""
        return cls(model, await anext(chunks), chunks)

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    def __anext__(self) -> Awaitable[Chunk]:
        """Return the next chunk. A plain function: a coroutine would cost time for each chunk."""
        return anext(self._rest) if self._first is None else self._take_first()

    async def _take_first(self) -> Chunk:
        first, self._first = self._first, None
        assert first is not None
        return first

    async def aclose(self) -> None:
        """Stop the generation, unless it has ended."""
        await self._rest.aclose()


@dataclass(frozen=True, slots=True)
class ChunkMeta:
    """The keys that all chunks of one answer share, or that its whole object has."""

    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    id: str = field(default_factory=lambda: f"chatcmpl-{token_hex(16)}")

    def as_wire(self, kind: str) -> dict[str, Any]:
        """Return the common keys."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


async def assemble(answer: ModelAnswer, meta: ChunkMeta) -> dict[str, Any]:
    """Assemble the chunks of an answer into one `chat.completion` object. Raises ApiError."""
    choices: dict[int, dict[str, Any]] = {}
    usage: Mapping[str, Any] | None = None
    async with aclosing(answer):
        async for chunk in answer:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                index = choice["index"]
                message = {"role": "assistant", "content": None, "refusal": None}
                empty = {
                    "index": index,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": None,
                }
                _add(choices.setdefault(index, empty), choice)
    listed = [choices[index] for index in sorted(choices)]
    for whole in listed:
        message, text = whole["message"], whole["message"]["content"]
        # As in OpenAI's API: null only beside tool calls.
        message["content"] = text or (None if message.get("tool_calls") else "")
        whole["finish_reason"] = whole["finish_reason"] or "stop"  # some engines send none
    return {**meta.as_wire("chat.completion"), "choices": listed, "usage": usage}


def _add(whole: dict[str, Any], choice: Chunk) -> None:
    message, delta = whole["message"], choice["delta"]
    for key in ("content", "reasoning_content", "refusal"):
        if isinstance(delta.get(key), str):
            message[key] = (message.get(key) or "") + delta[key]
    for part in delta.get("tool_calls") or ():
        calls = message.setdefault("tool_calls", [])
        index = part.get("index")
        if index is None:  # some engines send each call whole, and without a number
            index = len(calls)
        while len(calls) <= index:
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
    for entry in (choice.get("logprobs") or {}).get("content") or ():
        whole["logprobs"] = whole["logprobs"] or {"content": [], "refusal": None}
        whole["logprobs"]["content"].append(entry)
    whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
    if "stop_reason" in choice:
        whole["stop_reason"] = choice["stop_reason"]
