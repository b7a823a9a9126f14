"""Priorities and weights of keys that share one engine, measured on the real model.

First an interactive tendril asks once a second alone, then while a background tendril keeps 64
requests outstanding; then two tendrils with weights 3 and 1 keep the engine saturated. The goal for
the time to the first token under load is 1.3 times the idle one, or one decoding step of the
running generation if that is longer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from statistics import median

import httpx2

from benchmarks.figure import Figure, percentile
from benchmarks.small_server import ENDLESS, small_server
from storage.usage.api_keys import Key
from tests.kit.ubuntu import spoken

QUESTIONS = 30
EVERY = 1.0  # seconds between questions
FLOOD = 64  # outstanding background requests
ANSWER = 24  # tokens
SHORT = 4  # tokens of a question's answer: few, so that one a second does not saturate the engine
WEIGHED = 100  # answers measured with weighted keys
OUTSTANDING = 6  # requests of each weighted key
KEYS = (
    Key("question"),
    Key("flood", priority="background"),
    Key("heavy", weight=3),
    Key("light"),
)


@dataclass(slots=True)
class Asker:
    """One client with its key and its measurements.

    `answer` is the length of its answers in tokens, `first` the seconds to each first token,
    `steps` the seconds between further tokens. `tokens["computed"]` counts prompt and completion
    tokens that did not come from the cache.
    """

    http: httpx2.AsyncClient
    headers: dict[str, str]
    answer: int
    first: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)

    async def ask(self, text: str) -> None:
        """Send a chat, read the streamed answer and record the times and tokens.

        Raises RuntimeError for an error status.
        """
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.answer,
            "logit_bias": ENDLESS,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        last = time.perf_counter()
        waiting = True
        async with self.http.stream(
            "POST", "/v1/chat/completions", json=body, headers=self.headers
        ) as response:
            if response.status_code != 200:
                raise RuntimeError((await response.aread()).decode())
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                now = time.perf_counter()
                if any(choice["delta"].get("content") for choice in chunk["choices"]):
                    (self.first if waiting else self.steps).append(now - last)
                    waiting, last = False, now
                if usage := chunk.get("usage"):
                    self.tokens["computed"] += usage["total_tokens"]
                    self.tokens["computed"] -= usage["prompt_tokens_details"]["cached_tokens"]


async def figures() -> AsyncIterator[Figure]:
    """Yield the milliseconds to the first token idle and under load, the throughput, and the
    ratio of tokens of the weighted keys."""
    texts = _texts()
    async with small_server(*KEYS) as (http, headers):
        tendrils = {
            name: Asker(http, each, SHORT if name == "question" else ANSWER)
            for name, each in headers.items()
        }
        question, flood = tendrils["question"], tendrils["flood"]
        await _every_second(question, texts)
        idle = percentile(question.first, 0.95)
        yield Figure("first token, idle, p95", idle * 1000, "ms")
        question.first.clear()
        seconds = await _flooded(question, flood, texts)
        busy, step = percentile(question.first, 0.95), median(flood.steps)
        yield Figure("one step of a running generation, median", step * 1000, "ms")
        yield Figure("first token, in a flood, median", median(question.first) * 1000, "ms")
        goal = max(1.3 * idle, step) * 1000
        yield Figure("first token, in a flood, p95", busy * 1000, "ms", goal)
        yield Figure("the flood's tokens per second", flood.tokens["computed"] / seconds, "/s")
        yield Figure("questions' tokens per second", question.tokens["computed"] / seconds, "/s")
        heavy, light = tendrils["heavy"], tendrils["light"]
        await _weighed(heavy, light, texts)
        ratio = heavy.tokens["computed"] / light.tokens["computed"]
        yield Figure("tokens of weight 3 against weight 1", ratio, "")
        yield Figure("the same, off 3 by", abs(ratio - 3) / 3 * 100, "%", 10)


async def _every_second(question: Asker, texts: Iterator[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(QUESTIONS):
            tasks.create_task(question.ask(next(texts)))
            await asyncio.sleep(EVERY)


async def _flooded(question: Asker, flood: Asker, texts: Iterator[str]) -> float:
    """Ask a question a second while FLOOD background requests are kept outstanding; return the
    seconds that it took."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        flooding = [tasks.create_task(_again_and_again(flood, texts)) for _ in range(FLOOD)]
        await _every_second(question, texts)
        for task in flooding:
            task.cancel()
    return time.perf_counter() - began


async def _weighed(heavy: Asker, light: Asker, texts: Iterator[str]) -> None:
    """Keep OUTSTANDING requests of each key running or queued until WEIGHED answers have begun."""
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(_again_and_again(asker, texts))
            for asker in (heavy, light)
            for _ in range(OUTSTANDING)
        ]
        while len(heavy.first) + len(light.first) < WEIGHED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for task in asking:
            task.cancel()


async def _again_and_again(asker: Asker, texts: Iterator[str]) -> None:
    while True:
        await asker.ask(next(texts))


def _texts() -> Iterator[str]:
    """Yield questions with three channel lines each.

    Their number comes first, so that no two share a prefix that could come from the cache.
    """
    lines = [line.decode("utf-8", "replace") for line in spoken(400)]
    for number in itertools.count():
        start = number * 3 % (len(lines) - 3)
        yield f"Question {number}. What is this about?\n" + "\n".join(lines[start : start + 3])
