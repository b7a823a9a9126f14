"""Prefix caching on the agent server with five interleaved conversations.

Each prompt extends the previous one of its conversation, as the tendrils' prompts do. There are
more conversations than slots, so the engine has to cache the inactive ones. Tokens are counted by
the engine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from benchmarks.figure import Figure, percentile
from benchmarks.small_server import ENDLESS, small_server
from tests.kit.ubuntu import spoken

CONVERSATIONS = 5
TURNS = 20
FIRST, MORE = 10, 3
"""Channel lines at the start of a conversation, and added by each turn."""

ANSWER = 16  # tokens
CHAT = "/v1/chat/completions"


async def figures() -> AsyncIterator[Figure]:
    """Yield the share of prompt tokens that were computed, and the time of a whole turn."""
    async with small_server() as (http, _):
        talked = await talk(http)
    yield Figure("prompt tokens", talked.prompt, "")
    yield Figure("of them not from the cache", 100 - talked.cached, "%", 15)
    yield Figure("a turn of 16 tokens, median", percentile(talked.seconds, 0.5) * 1000, "ms")


@dataclass(frozen=True, slots=True)
class Talked:
    """The tokens of all prompts, the percentage of them from the cache, and the seconds of each
    turn."""

    prompt: int
    cached: float
    seconds: Sequence[float]


async def talk(http: httpx2.AsyncClient, turns: int = TURNS) -> Talked:
    """Play `turns` turns of all conversations, interleaved, and add up the reported usage."""
    talks = [_Talk(http, number) for number in range(CONVERSATIONS)]
    seconds = [await each.turn(turn) for turn in range(turns) for each in talks]
    prompt, cached = (sum(counts) for counts in zip(*(each.used for each in talks), strict=True))
    return Talked(prompt, cached / prompt * 100, seconds)


class _Talk:
    """One conversation with an append-only prompt."""

    def __init__(self, http: httpx2.AsyncClient, number: int) -> None:
        self._http = http
        self._session = f"bench/{number}"
        size = FIRST + TURNS * MORE
        lines = [line.decode("utf-8", "replace") for line in spoken(CONVERSATIONS * size)]
        self._lines = lines[number * size :][:size]
        self._messages: list[dict[str, Any]] = []
        self._used: list[tuple[int, int]] = []

    @property
    def used(self) -> tuple[int, int]:
        """The tokens of all prompts so far, and how many of them came from the cache."""
        return sum(prompt for prompt, _ in self._used), sum(cached for _, cached in self._used)

    async def turn(self, turn: int) -> float:
        """Send the lines of turn number `turn` and read the answer; return the seconds it took."""
        start = FIRST + turn * MORE if turn else 0
        text = "\n".join(self._lines[start : FIRST + (turn + 1) * MORE])
        self._messages.append({"role": "user", "content": text})
        began = time.perf_counter()
        body = {"messages": self._messages, "max_tokens": ANSWER, "logit_bias": ENDLESS}
        answer = await self._http.post(CHAT, json=body, headers={"x-session-id": self._session})
        answer.raise_for_status()
        usage = answer.json()["usage"]
        self._used.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        message = answer.json()["choices"][0]["message"]
        self._messages.append({"role": "assistant", "content": message["content"]})
        return time.perf_counter() - began
