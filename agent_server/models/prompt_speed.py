"""How fast a model reads prompts on this machine, learned from the answers that it gives anyway."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agent_server.engine_protocol import Chunk
from agent_server.metering.request_context import RequestContext
from agent_server.usage import RequestUsage

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

    def timer(self, context: RequestContext) -> PromptTimer:
        """Begin to time a prompt that is sent now."""
        return PromptTimer(self, context)


class PromptTimer:
    """Learns how fast one prompt is read, from the chunks of its answer.

    llama.cpp says how long the prompt took (`timings`). Of other engines the time to the first
    chunk is taken, without that of waiting for a place, over what was not cached.
    """

    def __init__(self, speed: PromptSpeed, context: RequestContext) -> None:
        self._speed = speed
        self._context = context
        self._began = time.monotonic()
        self._waited = context.queue_seconds
        self._first = 0.0
        self._is_timed = False

    def observe(self, chunk: Chunk) -> None:
        """Learn from the next chunk."""
        if not self._first and _says_something(chunk):
            waited = self._context.queue_seconds - self._waited
            self._first = time.monotonic() - self._began - waited
        if timings := _timings(chunk):
            self._speed.note(*timings)
            self._is_timed = True
        elif self._first and not self._is_timed and chunk.get("usage"):
            usage = RequestUsage.from_wire(chunk["usage"])
            self._speed.note(usage.prompt - usage.cached, self._first)
            self._is_timed = True


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
