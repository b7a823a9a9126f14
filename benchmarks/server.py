"""Overhead of the agent server in front of an engine, compared with other gateways.

With the real engine: llama.cpp's own port, the agent server, LiteLLM's proxy. With an engine
without latency, which isolates the gateway's own cost: a pass-through proxy, the agent server with
key, admission, validation, usage and log, LiteLLM. Rounds alternate between the gateways and
medians are reported, so that other load on the machine affects all alike.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

from benchmarks.figure import Figure, percentile
from benchmarks.gateways import Gateway, litellm, load, native, speaking, terrarium
from benchmarks.instant_engine import NAME, PACE
from benchmarks.load import Tally

ASK = {"messages": [{"role": "user", "content": "Count from one to a thousand."}]}
EVENTS = 63
ROUNDS = 3
SLOTS = 16
MS = 1000

Turns = dict[str, list[Tally]]


async def figures() -> AsyncIterator[Figure]:
    """Yield the figures with the engine without latency, then with the real one."""
    async for figure in _instant():
        yield figure
    async for figure in _real():
        yield figure


async def _real() -> AsyncIterator[Figure]:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(native(SLOTS))
        gateways = [
            engine,
            await stack.enter_async_context(terrarium(engine.url, engine.key, engine.model)),
        ]
        if peer := await stack.enter_async_context(litellm(engine.url, engine.key, engine.model)):
            gateways.append(peer)
        # The end-of-text token is barred, so every answer has exactly `max_tokens` tokens.
        endless = {**ASK, "temperature": 0, "logit_bias": {"2": -100}}
        for tokens, count, rounds in ((1, 10, 6), (64, 3, ROUNDS)):
            body = {**endless, "max_tokens": tokens}
            turns = await _turns(gateways, body, 1, count, rounds=rounds)
            for figure in _latency(turns, tokens):
                yield figure
        turns = await _turns(gateways, {**endless, "max_tokens": 64}, SLOTS, 2 * SLOTS)
        speeds = {name: _rate(each) for name, each in turns.items()}
        for name, speed in speeds.items():
            yield Figure(f"real, 16 at once, {name}", speed * 64, "tokens/s")
        # A figure's goal is an upper limit, so this is the inverse of the relative speed.
        ratio = speeds["native"] / speeds["terrarium"]
        yield Figure("real, 16 at once, native/terrarium", ratio, "", 1 / 0.98)


def _latency(turns: Turns, tokens: int) -> Sequence[Figure]:
    medians = {
        name: statistics.median(time for each in tallies for time in each.whole) * MS
        for name, tallies in turns.items()
    }
    found = [Figure(f"real, {tokens} tokens, {name}", ms, "ms") for name, ms in medians.items()]
    added = {name: ms - medians["native"] for name, ms in medians.items()}
    if tokens == 1:
        found.append(Figure("real, 1 token, terrarium adds", added["terrarium"], "ms", 1.5))
        if "litellm" in added:
            share = added["terrarium"] / added["litellm"]
            found.append(Figure("real, 1 token, terrarium/litellm added", share, "", 0.1))
    else:
        ratio = medians["terrarium"] / medians["native"]
        found.append(Figure(f"real, {tokens} tokens, terrarium/native", ratio, "", 1.02))
    return found


async def _instant() -> AsyncIterator[Figure]:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(
            speaking("engine", "-m", "benchmarks.instant_engine")
        )
        gateways = [
            await stack.enter_async_context(
                speaking("thin", "-m", "benchmarks.thin_proxy", engine.url)
            ),
            await stack.enter_async_context(terrarium(engine.url, "", NAME)),
        ]
        if peer := await stack.enter_async_context(litellm(engine.url, "", NAME)):
            gateways.append(peer)
        for connections in (1, 16, 128):
            cpu: dict[str, float] = defaultdict(float)
            turns = await _turns(gateways, {**ASK, "max_tokens": 1}, connections, 1500, cpu)
            for figure in _throughput(turns, connections, cpu):
                yield figure
        cpu = defaultdict(float)
        body = {**ASK, "max_tokens": EVENTS, "stream": True}
        turns = await _turns(gateways, body, 16, 32, cpu)
        for name, tallies in turns.items():
            first = [time for each in tallies for time in each.first]
            whole = [time for each in tallies for time in each.whole]
            late = (statistics.median(whole) - EVENTS * PACE) * MS
            yield Figure(f"paced stream, {name}, first byte", percentile(first, 0.5) * MS, "ms")
            yield Figure(f"paced stream, {name}, late at the end", late, "ms")
            yield Figure(f"paced stream, {name}, CPU each", cpu[name] * MS, "ms")


def _throughput(turns: Turns, connections: int, cpu: dict[str, float]) -> Sequence[Figure]:
    found, rates = [], {}
    for name, tallies in turns.items():
        rates[name] = _rate(tallies)
        times = [time for each in tallies for time in each.whole]
        where = f"instant, {connections}, {name}"
        found += [
            Figure(where, rates[name], "req/s"),
            Figure(f"{where}, p50", percentile(times, 0.5) * MS, "ms"),
            Figure(f"{where}, p99", percentile(times, 0.99) * MS, "ms"),
            Figure(f"{where}, CPU each", cpu[name] * MS, "ms"),
        ]
        if errors := sum(each.errors for each in tallies):
            found.append(Figure(f"{where}, errors", errors, "", 0))
    ratio = rates["thin"] / rates["terrarium"]
    found.append(Figure(f"instant, {connections}, thin/terrarium", ratio, "", 2))
    if "litellm" in rates:
        share = rates["litellm"] / rates["terrarium"]
        found.append(Figure(f"instant, {connections}, litellm/terrarium", share, "", 1 / 20))
    return found


async def _turns(
    gateways: Sequence[Gateway],
    body: dict[str, object],
    connections: int,
    count: int,
    cpu: dict[str, float] | None = None,
    rounds: int = ROUNDS,
) -> Turns:
    """Return every gateway's tallies, one per round.

    Adds to `cpu` each gateway's mean CPU seconds per answer.
    """
    turns: Turns = {gateway.name: [] for gateway in gateways}
    for gateway in gateways:
        await load(gateway, body, connections, connections)  # warm-up
    for _ in range(rounds):
        for gateway in gateways:
            # LiteLLM is slow: the full number of requests would take an hour.
            asked = max(connections, count // 15) if gateway.name == "litellm" else count
            before = gateway.cpu()
            turns[gateway.name].append(await load(gateway, body, connections, asked))
            if cpu is not None:
                cpu[gateway.name] += (gateway.cpu() - before) / asked / rounds
    return turns


def _rate(tallies: Sequence[Tally]) -> float:
    """Return the answers per second, the median of the rounds."""
    return statistics.median(len(each.whole) / each.seconds for each in tallies)
