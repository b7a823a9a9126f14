"""Lines near in meaning among many vectors: latency of a search, without embedding its text.

The vectors are random and have the real model's dimensions; the time of a comparison does not
depend on their values.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks.figure import Figure, percentile
from storage.chat_log.event import PUBLIC, Event, EventType, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.database import Database
from storage.log import ChatLog
from storage.search.vectors import LineText, VectorIndex, find_near

DIMENSIONS = 384
SIZES = (1_000, 20_000)
STEP = 1_000
SEARCHES = 15
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


async def figures() -> AsyncIterator[Figure]:
    """Yield the milliseconds of a search over all channels and over one of ten."""
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Database.open(Path(folder) / "irc.db") as database,
            ChatLog.open(database) as log,
        ):
            vectors, filled = VectorIndex(database), 0
            await vectors.open()
            for size in SIZES:
                for start in range(filled, size, STEP):
                    ids = await log.add([_line(start + number) for number in range(STEP)])
                    made = random.standard_normal((STEP, DIMENSIONS), dtype=np.float32)
                    lines = [LineText(event_id, str(event_id)) for event_id in ids]
                    texts = [line.text for line in lines]
                    await vectors.add(lines, dict(zip(texts, made.tolist(), strict=True)))
                filled = size
                for what, scope in (
                    ("all", PUBLIC),
                    ("one of ten channels", Scope.from_places(Place("irc", "#c1"))),
                ):
                    times = [await _timed(log, scope) for _ in range(SEARCHES)]
                    name = f"meaning, {size:,} vectors, {what}"
                    yield Figure(f"{name}, p95", percentile(times, 0.95), "ms")


def _line(number: int) -> Event:
    return Event(
        network="irc",
        channel=f"#c{number % 10}",
        type=EventType.PRIVMSG,
        time=BEGIN + timedelta(seconds=number),
        nick=f"nick{number % 50}",
        text=f"a line of some length, number {number}",
    )


async def _timed(log: ChatLog, scope: Scope) -> float:
    asked = np.random.default_rng().standard_normal(DIMENSIONS).tolist()
    began = time.perf_counter()
    page = await log.read(find_near, asked, Query(scope=scope, limit=20))
    assert len(page.hits) == 20
    return (time.perf_counter() - began) * 1000
