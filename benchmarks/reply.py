"""From a question's line to the first line of the reply, without the model's time.

The model is a scripted one that answers at once, behind the real agent server, so its own time is
next to nothing; what is measured is what Terrarium adds: IRC, the log, the context, the turn, the
server. `.ping`, which asks no model, shows in the same run what IRC takes by itself.
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
PAUSE = 1.1  # seconds: slower than our own flood control, which is not what is measured
GOAL = 20.0  # milliseconds


async def figures() -> AsyncIterator[Figure]:
    """Milliseconds of `.ping` and of a question, median and 95th percentile."""
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
    """Milliseconds until the reply's first line."""
    await asyncio.sleep(PAUSE)
    began = time.perf_counter()
    await client.say(ROOM, command)
    await client.expect(rf":Terra!\S+ PRIVMSG {ROOM} :alice: ")
    return (time.perf_counter() - began) * 1000
