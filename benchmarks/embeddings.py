"""Embedding throughput, and the slowdown of a chat that runs at the same time.

Uses the real small chat model and the real embedding model behind one agent server on this
machine. The texts are lines of #ubuntu.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import httpx2

from benchmarks.figure import Figure, percentile
from terrarium.logging import configure
from tests.kit.agent_server import agent_server
from tests.kit.ubuntu import spoken

TEXTS = 64
QUESTIONS = 30
ROUNDS = 3
LENGTH = 32  # tokens of a chat's answer
ENDLESS = {"0": -100, "2": -100}  # bars the end-of-text tokens: every answer has LENGTH tokens
LEAST_SHARE = 0.9  # of the speed of a chat without concurrent embeddings


async def figures() -> AsyncIterator[Figure]:
    """Yield texts per second, milliseconds per single text, and the relative speed of a chat
    during a flood of embedding requests."""
    configure("benchmark", "warning")
    lines = [line.decode("utf-8", "replace") for line in spoken(TEXTS)]
    async with (
        agent_server({}) as url,
        httpx2.AsyncClient(base_url=url, timeout=300) as http,
    ):
        await _embedded(http, lines[:1])  # warm-up: loads the model
        rate = len(lines) / await _embedded(http, lines)
        yield Figure("texts embedded", rate, "/s")
        times = [1000 * await _embedded(http, [line]) for line in lines[:QUESTIONS]]
        yield Figure("one question, median", percentile(times, 0.5), "ms")
        yield Figure("one question, p95", percentile(times, 0.95), "ms")
        await _chat_seconds(http)  # warm-up
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(await _chat_seconds(http))
            flood = asyncio.create_task(_flood(http, lines))
            beside.append(await _chat_seconds(http))
            flood.cancel()
            with suppress(asyncio.CancelledError):
                await flood
        share = percentile(alone, 0.5) / percentile(beside, 0.5)
        yield Figure("speed of a chat beside a flood of texts", share, "x", least=LEAST_SHARE)


async def _embedded(http: httpx2.AsyncClient, texts: Sequence[str]) -> float:
    """Return the seconds that one embedding request takes."""
    began = time.perf_counter()
    body = {"input": list(texts), "encoding_format": "base64", "model": "multilingual-e5-small"}
    (await http.post("/v1/embeddings", json=body)).raise_for_status()
    return time.perf_counter() - began


async def _flood(http: httpx2.AsyncClient, texts: Sequence[str]) -> None:
    while True:
        await _embedded(http, texts)


async def _chat_seconds(http: httpx2.AsyncClient) -> float:
    """Return the seconds that an answer of LENGTH tokens takes."""
    began = time.perf_counter()
    body = {
        "messages": [{"role": "user", "content": "Count."}],
        "max_tokens": LENGTH,
        "logit_bias": ENDLESS,
    }
    (await http.post("/v1/chat/completions", json=body)).raise_for_status()
    return time.perf_counter() - began
