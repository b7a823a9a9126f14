"""PostgreSQL against SQLite: imports, searches, a copy there and back, and kills.

Both are measured alternately in the same run. The server is Debian's, on this machine, with fsync
on. `LINES=100000` and `KILLS=20` make it shorter; the SQLite log is kept in the folder `BENCH_LOGS`
for the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from benchmarks.figure import Figure, percentile
from benchmarks.log import log_folder, log_of
from benchmarks.log_questions import questions
from benchmarks.ubuntu import PAUSE, NoCorpus, events
from harnesses.logs.formats import json_line
from storage.chat_log.event import EVERYTHING, PUBLIC
from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.search.models import Order, SearchQuery
from storage.transfer import copy_store
from tests.kit.log_writer import kill_in_turn
from tests.kit.postgres import PostgresServer, postgres_server

LINES = int(os.environ.get("LINES", "1000000"))
KILLS = int(os.environ.get("KILLS", "200"))
IMPORTED = 50_000
BATCH = 5_000
RUNS = 3  # of each search; the median counts
LONGEST = 0.02  # seconds at most from an acknowledged line to a kill
PER_ROUND = 1_000_000  # size of the range of line numbers of one round


async def figures() -> AsyncIterator[Figure]:
    """Yield lines per second, seconds of a copy, milliseconds of searches, and lines lost by
    kills."""
    try:
        with tempfile.TemporaryDirectory() as name, postgres_server() as server:
            async for figure in _import(Path(name), server):
                yield figure
            with log_folder() as folder:
                log = await log_of(folder, LINES)
                async for figure in _move_and_search(log, Path(name) / "back.db", server):
                    yield figure
            async for figure in _kill(server):
                yield figure
    except (NoCorpus, pytest.skip.Exception) as reason:
        print(f"  skipped: {reason}")


async def _import(folder: Path, server: PostgresServer) -> AsyncIterator[Figure]:
    made = list(events(IMPORTED))
    took = {"files": 0.0, "PostgreSQL": 0.0}
    schema = PostgresSchema(server.create("imported"), "irc")
    async with Database.open(folder / "x.db") as files, Database.open(schema) as postgres:
        for start in range(0, IMPORTED, BATCH):
            for name, database in (("files", files), ("PostgreSQL", postgres)):
                began = time.perf_counter()
                await ChatLog(database).add(made[start : start + BATCH])
                took[name] += time.perf_counter() - began
    for name, seconds in took.items():
        yield Figure(f"import into {name}: lines a second", IMPORTED / seconds, "/s")
    yield Figure("import: share of SQLite's", took["files"] / took["PostgreSQL"], "")


async def _move_and_search(log: Path, back: Path, server: PostgresServer) -> AsyncIterator[Figure]:
    schema = PostgresSchema(server.create("moved"), "irc")
    before = await _digest(log)
    async for figure in _move(log, schema, "there"):
        yield figure
    yield Figure("there: exports that differ", before != await _digest(schema), "", 0)
    async for figure in _search(log, schema):
        yield figure
    async for figure in _move(schema, back, "back"):
        yield figure
    yield Figure("back: exports that differ", before != await _digest(back), "", 0)


async def _move(source: Address, target: Address, label: str) -> AsyncIterator[Figure]:
    async with Database.open(source) as here, Database.open(target) as there:
        began = time.perf_counter()
        rows = await copy_store(here, there, lambda line: None)
        ended = time.perf_counter()
    yield Figure(f"{label}: rows", rows, "")
    yield Figure(f"{label}: copied and compared in", ended - began, "s")


async def _digest(address: Address) -> str:
    """Return the SHA-256 checksum of a complete export."""
    digest = hashlib.sha256()
    async with Database.open(address) as database:
        async for events in ChatLog(database).pieces(Query(scope=EVERYTHING)):
            for event in events:
                digest.update(json_line(event).encode())
    return digest.hexdigest()


async def _search(log: Path, schema: PostgresSchema) -> AsyncIterator[Figure]:
    pooled: dict[str, list[float]] = {"files": [], "PostgreSQL": []}
    async with Database.open(log) as files, Database.open(schema) as postgres:
        logs = {"files": ChatLog(files), "PostgreSQL": ChatLog(postgres)}
        for kind, texts in questions(PAUSE * LINES).items():
            times: dict[str, list[float]] = {"files": [], "PostgreSQL": []}
            partial_answers = dict.fromkeys(logs, 0)
            for text in texts:
                query = SearchQuery(text=text, within=Query(scope=PUBLIC), order=Order.RANK)
                runs: dict[str, list[float]] = {name: [] for name in logs}
                for _ in range(RUNS):
                    for name, each in logs.items():
                        began = time.perf_counter()
                        page = await each.search(query)
                        runs[name].append((time.perf_counter() - began) * 1000)
                for name, each in logs.items():
                    times[name].append(percentile(runs[name], 0.5))
                    page = await each.search(query)
                    partial_answers[name] += page.searched_back_to is not None
            for name, found in times.items():
                pooled[name] += found
                yield Figure(f"{kind}, {name}: p95", percentile(found, 0.95), "ms")
                if partial_answers[name]:
                    share = 100 * partial_answers[name] / len(texts)
                    yield Figure(f"{kind}, {name}: partial answers", share, "%")
    p95 = {name: percentile(found, 0.95) for name, found in pooled.items()}
    for name, value in p95.items():
        yield Figure(f"all searches, {name}: p95", value, "ms")
    yield Figure("all searches: p95, times SQLite's", p95["PostgreSQL"] / p95["files"], "x", 3)


async def _kill(server: PostgresServer) -> AsyncIterator[Figure]:
    address = PostgresSchema(server.create("killed"), "irc")
    told: set[int] = set()
    lost = twice = 0
    for number in range(KILLS // 2):
        kill = partial(kill_in_turn, server, address, number * PER_ROUND, LONGEST)
        told |= await asyncio.to_thread(kill)
        stored = await asyncio.to_thread(_stored, address)
        lost += len(told - set(stored))
        twice += len(stored) - len(set(stored))
    yield Figure("kills of PostgreSQL and of the writer in turn", KILLS, "")
    yield Figure("kills: lines acknowledged", len(told), "")
    yield Figure("kills: acknowledged lines lost", lost, "", 0)
    yield Figure("kills: lines stored twice", twice, "", 0)


def _stored(address: PostgresSchema) -> list[int]:
    with psycopg.connect(address.url) as connection:
        rows = connection.execute(f"SELECT text FROM {address.schema}.events".encode()).fetchall()
    return [int(row[0]) for row in rows]
