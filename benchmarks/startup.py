"""Time from `terrarium up` to its `ready` line, cold and warm; memory per process; time to stop."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from benchmarks.figure import Figure
from tests.kit.terrarium import terrarium_up

MIB = 1 << 20
PARTS = {
    "agent server": "harnesses.cli server",
    "engine": "agent_server.engines.llama_child",
    "IRC server": "harnesses.irc.ircd",
    "irc tendril": "run irc",
    "web tendril": "run web",
    "cron tendril": "run cron",
}


async def figures() -> AsyncIterator[Figure]:
    """Yield the seconds to `ready`, the MiB of each process by then, and the seconds to stop."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("cold (the model is fetched)", "warm"):
            began = time.perf_counter()
            async with terrarium_up(folder, XDG_CACHE_HOME=name) as up:
                yield Figure(f"start of up, {kind}", time.perf_counter() - began, "s")
                if kind == "warm":
                    yield _memory("terrarium up", psutil.Process(up.process.pid))
                    for part, words in PARTS.items():
                        yield _memory(part, up.child(words))
                    began = time.perf_counter()
                    await up.stop()
                    yield Figure("stop of up", time.perf_counter() - began, "s", goal=5)


def _memory(part: str, process: psutil.Process) -> Figure:
    return Figure(f"memory of {part}", process.memory_info().rss / MIB, "MiB")
