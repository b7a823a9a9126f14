"""The log: imports against bare SQLite, live writes, and searches of one and ten million lines.

The large logs are built from real lines (benchmarks/ubuntu.py) in the folder `BENCH_LOGS` and kept
there for the next run; without it, in a temporary folder. Ten million lines take 4 GB and some ten
minutes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.figure import Figure, percentile
from benchmarks.log_questions import questions
from benchmarks.ubuntu import BEGIN, PAUSE, NoCorpus, events
from storage import log_index
from storage.chat_log import event_table, statistics
from storage.chat_log.event import PUBLIC, Event
from storage.db.database import Database, to_micros
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from storage.text_index import fts5

SIZES = (1_000_000, 10_000_000)
IMPORTED = 200_000
BATCH = 5_000
FORMER = 323  # lines per second of the predecessor program
PER_SECOND, SECONDS = 500, 20  # of the live log
FEW = 90  # lines: fewer writes than trigger a checkpoint, so that the write-ahead log only grows
FRAME = 4_096 + 24  # bytes of a page in it (https://www.sqlite.org/fileformat.html#walformat)
AGAIN = 30  # runs of a page
_INSERT = f"INSERT INTO events VALUES ({', '.join('?' * 13)})"
RUNS = 3  # of each search; the median counts


async def figures() -> AsyncIterator[Figure]:
    """Yield lines per second for imports and milliseconds for everything else."""
    try:
        with tempfile.TemporaryDirectory() as name:
            async for figure in _writing(Path(name)):
                yield figure
        with log_folder() as folder:
            medians: dict[int, dict[str, float]] = {size: {} for size in SIZES}
            for size in SIZES:
                async for figure in _reading(await log_of(folder, size), size):
                    medians[size][figure.name.partition(": ")[2]] = figure.value
                    yield figure
            for name, small in medians[SIZES[0]].items():
                if name.endswith("median"):
                    yield Figure(f"tenfold: {name}", medians[SIZES[1]][name] / small, "x")
    except NoCorpus as reason:
        print(f"  skipped: {reason}")


async def _writing(folder: Path) -> AsyncIterator[Figure]:
    made = list(events(IMPORTED))
    took = {"ours": 0.0, "bare": 0.0}
    async with Database.open(folder / "ours.db") as database:
        with _Bare(await _tables(folder / "bare.db"), made) as bare:
            # Alternate by batch, so that other load on the machine affects both alike.
            for start in range(0, IMPORTED, BATCH):
                began = time.perf_counter()
                await ChatLog(database).add(made[start : start + BATCH])
                between = time.perf_counter()
                bare.write(start)
                took["bare"] += time.perf_counter() - between
                took["ours"] += between - began
    ours, bare_speed = IMPORTED / took["ours"], IMPORTED / took["bare"]
    yield Figure("import: lines a second, bare executemany", bare_speed, "/s")
    yield Figure("import: lines a second", ours, "/s", least=50 * FORMER)
    yield Figure("import: share of bare executemany", ours / bare_speed, "", least=0.7)
    async with Database.open(folder / "live.db") as database, ChatLog.open(database) as log:
        times = await _live(log, made)
        kept = (await log.read(statistics.channels, PUBLIC), len(times))
    yield Figure(f"live: acknowledged at {PER_SECOND}/s, median", percentile(times, 0.5), "ms")
    yield Figure(f"live: acknowledged at {PER_SECOND}/s, p99", percentile(times, 0.99), "ms", 60)
    lost = kept[1] - sum(channel.events for channel in kept[0])
    yield Figure("live: lines lost", lost, "", 0)
    yield Figure("live: pages written for a line", await _pages_of_a_line(folder, made), "", 27)


async def _pages_of_a_line(folder: Path, made: list[Event]) -> float:
    """Return the pages in the write-ahead log per line when each line is one transaction."""
    path = folder / "pages.db"
    async with Database.open(path) as database:
        await ChatLog(database).add(made[:BATCH])
        await database.execute_outside_transaction("PRAGMA wal_checkpoint(TRUNCATE)")
        for event in made[BATCH : BATCH + FEW]:
            work = partial(event_table.insert, events=[event], live=True)
            await database.write(work, durable=False)
        return path.with_name(f"{path.name}-wal").stat().st_size / FRAME / FEW


async def _tables(path: Path) -> Path:
    """Create a database with our schema and no rows; return its path."""
    async with Database.open(path):
        return path


class _Bare:
    """The baseline: `executemany` into the same tables, in transactions of the same size.

    All values are prepared in advance, and no counters are maintained.
    """

    def __init__(self, path: Path, made: list[Event]) -> None:
        channels = {name: number for number, name in enumerate({e.channel for e in made}, 1)}
        rows = [
            event_table.values(event, time // 1000, channels[event.channel], time)
            for event, time in zip(made, (to_micros(event.time) for event in made), strict=True)
        ]
        self._batches = {
            start: (batch := rows[start : start + BATCH], list(log_index.by_partition(batch)))
            for start in range(0, len(rows), BATCH)
        }
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("PRAGMA synchronous = FULL")
        names = [(number, "libera", name) for name, number in channels.items()]
        self._file.executemany("INSERT INTO channels VALUES (?, ?, ?, 0)", names)
        for number in {number for _, parts in self._batches.values() for number, _ in parts}:
            for table in fts5.tables(number):
                self._file.execute(table)

    def __enter__(self) -> _Bare:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def write(self, start: int) -> None:
        """Write the batch that begins at line `start`."""
        batch, partitions = self._batches[start]
        self._file.execute("BEGIN IMMEDIATE")
        self._file.executemany(_INSERT, batch)
        for number, lines in partitions:
            words, parts = fts5.inserts(number)
            self._file.executemany(words, lines)
            self._file.executemany(parts, [line[:2] for line in lines])
        self._file.execute("COMMIT")


async def _live(log: ChatLog, made: list[Event]) -> list[float]:
    """Append lines at a constant rate; return the milliseconds to each acknowledgement."""
    took: list[float] = []
    waiting = []
    begin = time.perf_counter()
    for number, event in enumerate(made[: PER_SECOND * SECONDS]):
        due = begin + number / PER_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        said = time.perf_counter()
        stored = log.append(replace(event, time=datetime.now(UTC)))
        stored.add_done_callback(partial(_took, took, said))
        waiting.append(stored)
    await asyncio.gather(*waiting)
    return took


def _took(took: list[float], said: float, _: asyncio.Future[int]) -> None:
    took.append((time.perf_counter() - said) * 1000)


@contextmanager
def log_folder() -> Iterator[Path]:
    """Yield the folder of the large logs: `BENCH_LOGS`, or a temporary one."""
    if kept := os.environ.get("BENCH_LOGS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


async def log_of(folder: Path, size: int) -> Path:
    """Return the path of a log of `size` lines, building it if it does not exist."""
    path = folder / f"log-{size}.db"
    if not path.exists():
        part = folder / f"part-{size}.db"
        async with Database.open(part) as database:
            made = events(size)
            while batch := list(islice(made, BATCH)):
                await ChatLog(database).add(batch)
        part.rename(path)  # only now, so that an interrupted build is not used
    with path.open("rb") as file:  # load the page cache, as for a log that is in use
        while file.read(1 << 24):
            pass
    return path


async def _reading(path: Path, size: int) -> AsyncIterator[Figure]:
    label = f"{size // 1_000_000} million"
    end = BEGIN + PAUSE * size
    async with Database.open(path) as database:
        log = ChatLog(database)
        pooled: list[float] = []
        for kind, texts in questions(end - BEGIN).items():
            times, partial_answers = [], 0
            for text in texts:
                search_query = SearchQuery(text=text, within=Query(scope=PUBLIC), order=Order.RANK)
                runs = [await _timed(partial(log.search, search_query)) for _ in range(RUNS)]
                times.append(percentile(runs, 0.5))
                partial_answers += (await log.search(search_query)).searched_back_to is not None
            pooled += times
            yield Figure(f"{label}: {kind}, median", percentile(times, 0.5), "ms")
            yield Figure(f"{label}: {kind}, p95", percentile(times, 0.95), "ms", 20)
            if partial_answers:
                share = 100 * partial_answers / len(texts)
                yield Figure(f"{label}: {kind}, partial answers", share, "%")
        yield Figure(f"{label}: all searches, p95", percentile(pooled, 0.95), "ms", 20)
        for name, work, goal in _pages(log, end):
            times = [await _timed(work) for _ in range(AGAIN)]
            yield Figure(f"{label}: {name}, median", percentile(times, 0.5), "ms")
            yield Figure(f"{label}: {name}, p95", percentile(times, 0.95), "ms", goal)


def _pages(
    log: ChatLog, end: datetime
) -> Iterator[tuple[str, Callable[[], Awaitable[object]], float]]:
    """Yield the queries behind web pages, each with its name and its goal in milliseconds."""
    everything, channel = Query(scope=PUBLIC), Query(scope=PUBLIC, channel="#bash")
    old = BEGIN + (end - BEGIN) / 3
    yield "recent 50 of all", lambda: log.find(everything), 6
    yield "recent 50 of a channel", lambda: log.find(channel), 6
    yield "recent 50 before a day", lambda: log.find(replace(channel, until=old)), 6
    yield "totals and top speakers of all", lambda: log.read(statistics.stats, everything, 10), 20
    yield (
        "totals and top speakers of a channel",
        lambda: log.read(statistics.stats, channel, 10),
        20,
    )
    yield "heat map", lambda: log.read(statistics.heat_map, everything), 20
    yield (
        "days of a year",
        lambda: log.read(statistics.days, replace(channel, since=end - timedelta(365))),
        20,
    )
    yield "channels", lambda: log.read(statistics.channels, PUBLIC), 20
    yield "sparklines", lambda: log.read(statistics.sparklines, PUBLIC, end), 20
    yield "a person", lambda: log.read(statistics.person, PUBLIC, "bob2"), 20


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000
