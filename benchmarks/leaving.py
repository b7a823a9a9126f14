"""Time until a slot is free after its client disconnects in the middle of an answer.

The scripted engine never ends its answers and there is one slot, so each disconnect admits the next
request from the queue. Measured until that request arrives at the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

from benchmarks.figure import Figure, percentile
from terrarium.logging import configure
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI

ROUNDS = 30
GOAL = 50.0  # milliseconds
BODY = {"messages": [{"role": "user", "content": "hello"}], "stream": True}


async def figures() -> AsyncIterator[Figure]:
    """Yield the milliseconds from a disconnect to the next request's arrival at the engine."""
    configure("bench", "warning", "console")
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "slots": 1}) as url,
        httpx2.AsyncClient(base_url=url, timeout=60) as http,
    ):
        for _ in range(ROUNDS + 1):
            script.hang("a beginning")
        reading = await _begun(http)
        times = []
        for number in range(ROUNDS):
            waiting = asyncio.create_task(_begun(http))
            await _until_waiting(http)
            began = time.perf_counter()
            await reading.response.aclose()
            await script.arrived(number + 2)
            times.append((time.perf_counter() - began) * 1000)
            reading = await waiting
        await reading.response.aclose()
    yield Figure("a place is free after its client left, median", percentile(times, 0.5), "ms")
    yield Figure("a place is free after its client left, p95", percentile(times, 0.95), "ms", GOAL)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A streamed answer whose first part has arrived.

    Holds a reference to `pieces`: collecting the generator as garbage would close the response.
    """

    response: httpx2.Response
    pieces: AsyncIterator[bytes]


async def _begun(http: httpx2.AsyncClient) -> _Reading:
    request = http.build_request("POST", "/v1/chat/completions", json=BODY)
    response = await http.send(request, stream=True)
    pieces = response.aiter_raw()
    await anext(pieces)
    return _Reading(response, pieces)


async def _until_waiting(http: httpx2.AsyncClient) -> None:
    wanted = 'terrarium_waiting{model="terra",priority="interactive"} 1.0'
    while wanted not in (await http.get("/metrics")).text:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
