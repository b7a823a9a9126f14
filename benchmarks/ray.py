"""Prefix caching and fairness of the agent server on Ray Serve, compared with a single process.

First, interleaved conversations as in `prefix_server`, on one process and on two replicas of the
engine. Then two keys with weights 3 and 1 saturate a paced upstream through two replicas of the
server; each request has its own conversation, so each replica receives about half of them.
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
TURNS = 10  # of each conversation, half of those of prefix_server; the same in both cases
PLACES = 4  # slots
WEIGHED = 400  # answers counted
WARM = 40  # answers before that, not counted
OUTSTANDING = 12  # requests of each key
PACED = 20  # events of an answer, 10 ms apart


async def figures() -> AsyncIterator[Figure]:
    """Yield the shares of cached prompt tokens, and of answers by weight; nothing without Ray."""
    if find_spec("ray") is None:
        print(f"  skipped: {HOW_TO_GET}")
        return
    async for figure in _cached():
        yield figure
    async for figure in _fairness():
        yield figure


async def _cached() -> AsyncIterator[Figure]:
    """Yield the share of cached prompt tokens on one process and on two engines."""
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
    """Yield the ratio of answers of two weighted keys through two server replicas."""
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
    """Run the paced engine as a child process; yield its URL."""
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
    """Keep requests of both keys queued for WEIGHED answers after a warm-up; count them by key."""
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
    """Return how many chats each of two server replicas answered, the smaller number first.

    The number comes from each replica's `/metrics`, reached by trying session ids until two
    different numbers have been seen.
    """
    found: set[int] = set()
    for number in itertools.count():
        session = {"x-session-id": f"look/{number}"}
        text = (await http.get("/metrics", headers=session)).text
        counted = re.search(rf'requests_total{{route="{CHAT}",status="200"}} (\d+)', text)
        found.add(int(counted[1]) if counted else 0)
        if len(found) == 2 or number == 100:
            break
    first, second = min(found), max(found)  # one number: both have answered as many
    return first, second
