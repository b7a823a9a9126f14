"""The time that a tendril takes to build the prompt of a thousand lines, by the length of the
log."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from benchmarks import ubuntu
from benchmarks.figure import Figure
from benchmarks.layouts import ours
from benchmarks.replay import Channel
from benchmarks.strong.turn import Turn
from benchmarks.strong.upstream import StrongModel
from storage.db.database import Database
from storage.log import ChatLog

LINES = 1_000
LENGTHS = (2_000, 100_000)
"""Lines of the log."""

_QUESTIONS = 20
_BATCH = 2_000  # lines that are written at once
_GOAL = 30  # milliseconds
_GROWTH = 1.25


async def building() -> AsyncIterator[Figure]:
    """Yield the milliseconds for each length of the log, and how they grow."""
    try:
        ubuntu.lines()
    except ubuntu.NoCorpus as error:
        print(f"  skipped: {error}")
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    took = []
    for length in LENGTHS:
        with tempfile.TemporaryDirectory() as name:
            took.append(await _built(Path(name), length))
        yield Figure(f"{LINES} lines of {length:,}, built in", took[-1], "ms", goal=_GOAL)
    yield Figure("the same, long log to short", took[1] / took[0], "", goal=_GROWTH)


async def _built(folder: Path, length: int) -> float:
    """Return the milliseconds from a question to its request, beyond those of a question without
    lines: of several questions the least, because everything else only disturbs them."""
    async with (
        StrongModel().running() as model,
        Database.open(folder / "log.db") as database,
        ours(folder, model.url) as bot,
    ):
        channel = Channel(ChatLog(database), 0)
        for _ in range(0, length, _BATCH):
            await channel.goes_on(_BATCH)
        times: dict[int, list[float]] = {0: [], LINES: []}
        for number in range(_QUESTIONS):
            for last, seconds in times.items():
                await channel.goes_on(3)
                asked = await channel.question()
                played = model.play(Turn(number, "", asked.who, asked.text, "So it is."))
                begin = time.perf_counter()
                answer = await bot.ask(channel, asked, last)
                seconds.append(played.requests[0].at - begin)
                assert played.requests[0].lines >= last, "the window of the model is too small"
                await channel.answered(asked, answer.text)
    return 1000 * (min(times[LINES]) - min(times[0]))
