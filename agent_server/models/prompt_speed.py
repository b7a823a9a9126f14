"""How fast a model reads prompts on this machine, learned from the answers that it gives anyway."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from agent_server.engine_protocol import Chunks
from agent_server.metering.request_context import current_request
from terrarium.usage import TokenUsage

LEAST = 32
"""Tokens read afresh under which the time says more about everything else."""

MEMORY = 4_000
"""Tokens after which what was seen before counts half."""


class PromptSpeed:
    """A running estimate of prompt tokens a second, of those that were in no cache."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._is_measured = False

    @property
    def rate(self) -> float | None:
        """Tokens a second; None as long as nothing was measured."""
        return self._tokens / self._seconds if self._seconds > 0 else None

    def note(self, tokens: int, seconds: float) -> None:
        """Take note that so many tokens were read in so many seconds."""
        if tokens < LEAST or seconds <= 0:
            return
        self._is_measured = True
        kept = 0.5 ** (tokens / MEMORY)
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds

    def recall(self, rate: float) -> None:
        """Take a rate for likely, of another start or of a trial, until answers tell better; of
        several the fastest, since the others say that the machine was busy."""
        if not self._is_measured and rate > (self.rate or 0):
            self._tokens, self._seconds = float(LEAST), LEAST / rate

    async def observe_chunks(self, chunks: Chunks) -> Chunks:
        """Pass on an engine's chunks, and learn from their timings or from the time they take.

        llama.cpp says how long the prompt took (`timings`). Of other engines the time to the
        first chunk is taken, without that of waiting for a place, over what was not cached.
        """
        context, began, first = current_request(), time.monotonic(), 0.0
        waited, timed = context.queue_seconds, False
        async with aclosing(chunks):
            async for chunk in chunks:
                if not first and _says_something(chunk):
                    first = time.monotonic() - began - (context.queue_seconds - waited)
                if timings := _timings(chunk):
                    self.note(*timings)
                    timed = True
                elif first and not timed and chunk.get("usage"):
                    usage = TokenUsage.from_wire(chunk["usage"])
                    self.note(usage.prompt - usage.cached, first)
                    timed = True
                yield chunk


def _says_something(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk has more than the role, which some engines send before they begin."""
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("text") or any(value for key, value in delta.items() if key != "role"):
            return True
    return False


def _timings(chunk: Mapping[str, Any]) -> tuple[int, float] | None:
    timings = chunk.get("timings")
    if not isinstance(timings, Mapping):
        return None
    tokens, milliseconds = timings.get("prompt_n"), timings.get("prompt_ms")
    if not isinstance(tokens, int) or not isinstance(milliseconds, int | float):
        return None
    return tokens, milliseconds / 1_000
