"""Failover time of the IRC tendril: from kill -9 of the active process to the standby's answer."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.figure import Figure, percentile
from tests.kit.command import begun
from tests.kit.irc_client import irc_client
from tests.kit.ircd import inspircd

ROUNDS = int(os.environ.get("ROUNDS", "5"))
ROOM = "#terrarium"
GOAL = 10.0  # seconds


async def figures() -> AsyncIterator[Figure]:
    """Yield the seconds until a command sent right after the kill is answered."""
    waits = [await _round() for _ in range(ROUNDS)]
    yield Figure("kill -9 to the standby's answer, median", percentile(waits, 0.5), "s")
    yield Figure("kill -9 to the standby's answer, longest", max(waits), "s", GOAL)


async def _round() -> float:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ircd = await stack.enter_async_context(inspircd())
        alice = await stack.enter_async_context(irc_client(ircd.port, "alice"))
        await alice.join(ROOM)
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(ircd.port), "IRC_STANDBY": "true"}
        settings |= {"IRC_CHANNELS": ROOM, "AGENT_API_URL": "http://127.0.0.1:9"}
        command = ("run", "irc", "--data", str(folder / "data"))
        processes = []
        for nick in ("Terra", "Terra_"):
            tendril = begun(*command, cwd=folder, **settings)
            processes.append(await stack.enter_async_context(tendril))
            await alice.expect(rf":{nick}!\S+ JOIN :?{ROOM}", timeout=60)
        await alice.say(ROOM, ".ping")
        await alice.expect("alice: pong", timeout=60)
        # The kill then comes at any point between two renewals of the lease.
        await asyncio.sleep(3)
        processes[0].kill()
        began = time.perf_counter()
        await alice.say(ROOM, ".ping")
        await alice.expect("alice: pong", timeout=60)
        return time.perf_counter() - began
