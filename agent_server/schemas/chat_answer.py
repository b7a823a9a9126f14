"""An answer in the API's two shapes: a stream of chunks, or one whole object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from agent_server.engine_protocol import Chunk, Chunks
from terrarium.usage import TokenUsage


@dataclass(slots=True)
class ChunkMeta:
    """What every chunk of one answer carries, and its whole object too.

    `model` is known for sure when the answer begins: the mind writes it then. `watched` is
    whether the client sees the chunks come.
    """

    model: str
    watched: bool = True
    id: str = field(default_factory=lambda: f"chatcmpl-{token_hex(16)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def as_wire(self, kind: str) -> dict[str, Any]:
        """Return the common keys."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


async def stamp_chunks(chunks: Chunks, meta: ChunkMeta) -> Chunks:
    """Give all chunks one head; the usage comes once, in a last chunk without choices.

    llama.cpp sends a usage for each choice of n > 1, and fields of its own.
    """
    total: TokenUsage | None = None
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.get("usage"):
                usage = TokenUsage.from_wire(chunk["usage"])
                total = usage if total is None else total.beside(usage)
            if choices := chunk.get("choices"):
                wire = [_choice(choice) for choice in choices]
                yield {**meta.as_wire("chat.completion.chunk"), "choices": wire}
    if total is not None:
        last = {**meta.as_wire("chat.completion.chunk"), "choices": []}
        yield {**last, "usage": total.as_wire()}


async def assemble(chunks: Chunks, meta: ChunkMeta) -> dict[str, Any]:
    """Put the chunks of an answer together into one `chat.completion` object."""
    choices: dict[int, dict[str, Any]] = {}
    usage: Mapping[str, Any] | None = None
    async with aclosing(chunks):
        async for chunk in chunks:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                whole = choices.setdefault(choice["index"], _empty(choice["index"]))
                _add(whole, choice)
    listed = [choices[index] for index in sorted(choices)]
    for whole in listed:
        whole["message"]["content"] = _content(whole["message"])
    return {**meta.as_wire("chat.completion"), "choices": listed, "usage": usage}


def _choice(choice: Chunk) -> Chunk:
    kept = {
        "index": choice.get("index", 0),
        "delta": choice.get("delta") or {},
        "finish_reason": choice.get("finish_reason"),
    }
    if choice.get("logprobs"):
        kept["logprobs"] = choice["logprobs"]
    if kept["finish_reason"] and isinstance(choice.get("stop_reason"), str):
        kept["stop_reason"] = choice["stop_reason"]  # vLLM's name for the stop sequence it met
    return kept


def _empty(index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": None}


def _add(whole: dict[str, Any], choice: Chunk) -> None:
    message, delta = whole["message"], choice["delta"]
    for key in ("content", "reasoning_content", "refusal"):
        if isinstance(delta.get(key), str):
            message[key] = (message.get(key) or "") + delta[key]
    for call in delta.get("tool_calls") or ():
        _add_call(message.setdefault("tool_calls", []), call)
    for entry in (choice.get("logprobs") or {}).get("content") or ():
        whole["logprobs"] = whole["logprobs"] or {"content": [], "refusal": None}
        whole["logprobs"]["content"].append(entry)
    whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
    if "stop_reason" in choice:
        whole["stop_reason"] = choice["stop_reason"]


def _add_call(calls: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    index = part.get("index", len(calls))
    while len(calls) <= index:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[index], part.get("function") or {}
    call["id"] = part.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _content(message: Mapping[str, Any]) -> str | None:
    if message.get("tool_calls"):
        return message["content"] or None
    return message["content"] or ""
