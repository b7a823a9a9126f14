"""Whether the agent server on Ray Serve is as fair as one process, and caches as much of prompts.

First five conversations take turns, as in `prefix_server`, at one process and at two replicas of
the engine. Then two keys whose weights are 3 to 1 keep a paced upstream busy through two replicas
of the server, each request as a conversation of its own, so that both have about half of them.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

import httpx2

from agent_server.ray.command import HOW_TO_GET
from benchmarks.figure import Figure, percentile
from benchmarks.prefix_server import CHAT, talk
from benchmarks.small_server import small_server
from storage.usage.api_keys import Key

KEYS = (Key("heavy", weight=3), Key("light"))
TURNS = 10  # of each conversation: half of those of prefix_server, and the same at both
PLACES = 4
WEIGHED = 400  # answers
WARM = 40  # answers before that
OUTSTANDING = 12  # requests of each key
PACED = 20  # events of an answer, a hundredth of a second each


async def figures() -> AsyncIterator[Figure]:
    """Shares of prompts from the cache, and of answers by weight."""
    if find_spec("ray") is None:
        print(f"  skipped: {HOW_TO_GET}")
        return
    async for figure in _cached():
        yield figure
    async for figure in _fairness():
        yield figure


async def _cached() -> AsyncIterator[Figure]:
    """The share of prompts from the cache, by one process and by two engines."""
    async with small_server() as (http, _):
        alone = await talk(http, TURNS)
    async with small_server(
        options=["--ray"], RAY_MIN_ENGINES="2", RAY_MAX_ENGINES="2", MODEL_THREADS="1"
    ) as (http, _):
        on_ray = await talk(http, TURNS)
    yield Figure("prompts from the cache, one process", alone.cached, "%")
    yield Figure("prompts from the cache, on Ray", on_ray.cached, "%")
    yield Figure("less on Ray by", alone.cached - on_ray.cached, "points", 3)
    for name, talked in (("one process", alone), ("on Ray", on_ray)):
        yield Figure(f"a turn, {name}, median", percentile(talked.seconds, 0.5) * 1000, "ms")


async def _fairness() -> AsyncIterator[Figure]:
    """The answers of two keys by their weights, through two servers."""
    async with (
        _upstream() as upstream,
        small_server(
            *KEYS,
            options=["--ray"],
            MODEL_UPSTREAM=upstream,
            MODEL_SLOTS=str(PLACES),
            MODEL_CHOOSES_TOOLS="false",
            RAY_INGRESS_REPLICAS="2",
        ) as (http, headers),
    ):
        answered = await _weighed(http, headers)
        served = await _served(http)
    ratio = answered["heavy"] / answered["light"]
    yield Figure("answers of weight 3 against weight 1", ratio, "")
    yield Figure("the same, off 3 by", abs(ratio - 3) / 3 * 100, "%", 10)
    yield Figure("requests at the less busy of 2 servers", min(served) / sum(served) * 100, "%")


@asynccontextmanager
async def _upstream() -> AsyncIterator[str]:
    """The paced engine, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.instant_engine", stdin=PIPE, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.communicate()


async def _weighed(http: httpx2.AsyncClient, headers: Mapping[str, dict[str, str]]) -> Counter[str]:
    """Keep requests of both keys waiting until so many of them are answered."""
    answered: Counter[str] = Counter()
    sessions = itertools.count()

    async def keep_asking(key: str) -> None:
        while True:
            await _ask(http, headers[key], sessions)
            answered[key] += 1

    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(keep_asking(key)) for key in headers for _ in range(OUTSTANDING)
        ]
        while answered.total() < WARM:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        answered.clear()
        while answered.total() < WEIGHED:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        found = answered.copy()
        for task in asking:
            task.cancel()
    return found


async def _ask(
    http: httpx2.AsyncClient, headers: Mapping[str, str], sessions: Iterator[int]
) -> None:
    body = {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": PACED,
        "stream": True,
    }
    session = {"x-session-id": f"bench/{next(sessions)}"}
    answer = await http.post(CHAT, json=body, headers={**headers, **session})
    answer.raise_for_status()
    assert "[DONE]" in answer.text


async def _served(http: httpx2.AsyncClient) -> tuple[int, int]:
    """The chats that each of two servers has answered, by their own metrics."""
    found: set[int] = set()
    for number in itertools.count():
        session = {"x-session-id": f"look/{number}"}
        text = (await http.get("/metrics", headers=session)).text
        counted = re.search(rf'requests_total{{route="{CHAT}",status="200"}} (\d+)', text)
        found.add(int(counted[1]) if counted else 0)
        if len(found) == 2 or number == 100:
            break
    first, second = (*sorted(found), 0)[:2]
    return first, second
