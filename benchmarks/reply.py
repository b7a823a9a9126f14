"""Latency from a question to the first line of the reply, without the model's time.

A scripted model answers immediately behind the real agent server, so the latency is Terrarium's
own: IRC, log, context, turn and server. `.ping`, which asks no model, shows IRC's share of it in
the same run.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.figure import Figure, percentile
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.terrarium import terrarium_up
from tests.kit.ubuntu import spoken

ROOM = "#terrarium"
QUESTIONS = 40
PAUSE = 1.1  # seconds between questions, so that our own flood control does not delay replies
GOAL = 20.0  # milliseconds


async def figures() -> AsyncIterator[Figure]:
    """Yield the milliseconds of `.ping` and of a question, median and 95th percentile."""
    with tempfile.TemporaryDirectory() as name:
        async with (
            ScriptedOpenAI() as script,
            terrarium_up(Path(name), MODEL_UPSTREAM=script.url) as up,
            irc_client(up.irc_port, "alice") as alice,
        ):
            await alice.join(ROOM)
            for line in spoken(100):
                await alice.say(ROOM, line)
            await alice.settle()
            for command, goal in ((".ping", None), (".terrarium how are you?", GOAL)):
                times = [await _timed(alice, command) for _ in range(QUESTIONS)]
                yield Figure(f"reply to {command}, median", percentile(times, 0.5), "ms", goal)
                yield Figure(f"reply to {command}, p95", percentile(times, 0.95), "ms")


async def _timed(client: IrcClient, command: str) -> float:
    """Return the milliseconds until the first line of the reply."""
    await asyncio.sleep(PAUSE)
    began = time.perf_counter()
    await client.say(ROOM, command)
    await client.expect(rf":Terra!\S+ PRIVMSG {ROOM} :alice: ")
    return (time.perf_counter() - began) * 1000
