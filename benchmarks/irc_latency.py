"""Latency of IRC commands, compared with Limnoria and Sopel on the same InspIRCd.

The engine answers immediately, so `.terrarium` measures the tendril's own overhead. Each round asks
every bot in turn, so that other load on the machine affects all of them alike. Each bot has its own
channel: in a shared one every bot would process every question, and they would compete for CPU.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.echo_engine import echo_engine
from benchmarks.figure import Figure, percentile
from benchmarks.other_bots import limnoria, sopel
from tests.kit.command import begun
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import inspircd

ROUNDS = int(os.environ.get("ROUNDS", "40"))
PAUSE = 2.6  # seconds per round, slow enough that no bot's flood control takes effect
GOAL = 5.0  # milliseconds in addition to the engine's time


async def figures() -> AsyncIterator[Figure]:
    """Yield median latencies in milliseconds, and ours relative to the faster other bot's."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ircd = await stack.enter_async_context(inspircd())
        engine = await stack.enter_async_context(echo_engine())
        alice = await stack.enter_async_context(irc_client(ircd.port, "alice"))
        asked = {".ping": "Terra", ".terrarium": "Terra"}
        for nick in ("Terra", "limnoria", "sopel"):
            await alice.join(_room(nick))
        settings = {"IRC_SERVER": "127.0.0.1", "IRC_PORT": str(ircd.port)}
        settings["IRC_CHANNELS"] = _room("Terra")
        settings |= {"AGENT_API_URL": engine.url, "IRC_PERSON_PER_MINUTE": "1000"}
        settings["IRC_CHANNEL_PER_MINUTE"] = "1000"
        ours = begun("run", "irc", "--data", str(folder / "data"), cwd=folder, **settings)
        await stack.enter_async_context(ours)
        await alice.expect(rf":Terra!\S+ JOIN :?{_room('Terra')}", timeout=60)
        for name, bot in (("limnoria", limnoria), ("sopel", sopel)):
            home = folder / name
            home.mkdir()
            command = await stack.enter_async_context(bot(ircd.port, _room(name), home))
            await alice.expect(rf":{name}!\S+ JOIN :?{_room(name)}", timeout=120)
            asked[command] = name
        times = await _rounds(alice, asked)
        engines = percentile(engine.took[-ROUNDS:], 0.5)
    medians = {command: percentile(values, 0.5) for command, values in times.items()}
    theirs = min(median for command, median in medians.items() if asked[command] != "Terra")
    for command, median in medians.items():
        yield Figure(f"{asked[command]}: {command}, median", median, "ms")
    yield Figure("the engine's own time, median", engines, "ms")
    yield Figure(".ping / faster of the others", medians[".ping"] / theirs, "", 1.0)
    yield Figure(".terrarium / faster of the others", medians[".terrarium"] / theirs, "", 1.0)
    yield Figure(".terrarium over the engine", medians[".terrarium"] - engines, "ms", GOAL)


async def _rounds(alice: IrcClient, asked: dict[str, str]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {command: [] for command in asked}
    # The first three rounds are a warm-up. The number makes each line different, because Sopel
    # suppresses a line that it has just repeated several times.
    for number in range(-3, ROUNDS):
        for command, nick in asked.items():
            await asyncio.sleep(PAUSE / len(asked))
            took = await _timed(alice, f"{command} hi-{number}", nick)
            if number >= 0:
                times[command].append(took)
    return times


async def _timed(alice: IrcClient, command: str, nick: str) -> float:
    began = time.perf_counter()
    await alice.say(_room(nick), command)
    await alice.expect(rf"^:{nick}!\S+ PRIVMSG {_room(nick)} ")
    return (time.perf_counter() - began) * 1000


def _room(nick: str) -> str:
    return f"#{nick.lower()}"
