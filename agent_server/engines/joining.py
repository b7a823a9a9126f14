"""Chunks that arrived together, made one where nobody watches them come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent_server.engines.base import Chunk


def joined(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Put plain text that follows plain text of the same choice together."""
    held: Chunk | None = None
    for chunk in chunks:
        if not _is_text(chunk):
            if held is not None:
                yield held
            held = None
            yield chunk
        elif held is None:
            held = chunk
        elif held["choices"][0].get("index") == chunk["choices"][0].get("index"):
            held["choices"][0]["delta"]["content"] += chunk["choices"][0]["delta"]["content"]
        else:
            yield held
            held = chunk
    if held is not None:
        yield held


def _is_text(chunk: Chunk) -> bool:
    """Whether it says some words and nothing else."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage"):
        return False
    choice = choices[0]
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("logprobs"):
        return False
    delta = choice.get("delta")
    return isinstance(delta, dict) and len(delta) == 1 and isinstance(delta.get("content"), str)
