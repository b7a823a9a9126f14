"""What Prometheus is told."""

from __future__ import annotations

import time
from contextlib import aclosing

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from agent_server.engines.base import Chunk, Chunks
from agent_server.usage import Usage

SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "terrarium_requests", "Requests answered", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "terrarium_request_seconds", "From the request to the end of its answer", ["route"],
            registry=self._registry, buckets=SECONDS,
        )  # fmt: skip
        self._tokens = Counter(
            "terrarium_tokens", "Tokens of prompts (prompt), those of them that were in the "
            "engine's cache (cached), and of answers (completion)", ["kind"],
            registry=self._registry,
        )  # fmt: skip
        self._first = Histogram(
            "terrarium_first_token_seconds", "From the request to the first token of its answer",
            registry=self._registry, buckets=SECONDS,
        )  # fmt: skip

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    async def watch(self, chunks: Chunks) -> Chunks:
        """Pass an answer through, timing its first token and counting its tokens."""
        began, waiting = time.monotonic(), True
        async with aclosing(chunks):
            async for chunk in chunks:
                if waiting and _says_something(chunk):
                    waiting = False
                    self._first.observe(time.monotonic() - began)
                if chunk.get("usage"):
                    self._count(Usage.from_wire(chunk["usage"]))
                yield chunk

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _count(self, usage: Usage) -> None:
        self._tokens.labels("prompt").inc(usage.prompt)
        self._tokens.labels("cached").inc(usage.cached)
        self._tokens.labels("completion").inc(usage.completion)


def _says_something(chunk: Chunk) -> bool:
    keys = ("content", "reasoning_content", "tool_calls")
    return any(choice["delta"].get(key) for choice in chunk["choices"] for key in keys)
