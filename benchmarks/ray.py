"""Prefix caching of the agent server on Ray Serve, compared with a single process.

Interleaved conversations as in `prefix_server`, on one process and on two replicas of the engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec

from agent_server.ray.command import HOW_TO_GET
from benchmarks.figure import Figure, percentile
from benchmarks.prefix_server import talk
from benchmarks.small_server import small_server

TURNS = 10  # of each conversation, half of those of prefix_server; the same in both cases


async def figures() -> AsyncIterator[Figure]:
    """Yield the shares of cached prompt tokens; nothing without Ray."""
    if find_spec("ray") is None:
        print(f"  skipped: {HOW_TO_GET}")
        return
    async for figure in _cached():
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
