"""A writer that is killed at any moment has stored, once, all that it said was stored."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer

import pytest

from storage.chat_log.event import Event, EventType
from storage.db.database import Database
from storage.log import ChatLog

ROUNDS = 200
LONGEST = 0.02  # seconds from the first line that was acknowledged to the kill
IN_LINE = 40  # lines that wait at once
PER_ROUND = 1_000_000
NUMBER = struct.Struct("q")


def event(number: int) -> Event:
    kind = EventType.PRIVMSG
    time = datetime.now(UTC)
    return Event(network="irc", channel="#pond", type=kind, time=time, nick="ada", text=str(number))


def stream(path: Path, begin: int, acknowledge: Connection) -> None:
    """Append numbered lines for ever and tell which ones are durable; run in another process."""

    async def write() -> None:
        async with Database.open(path) as database, ChatLog.open(database) as log:
            room = asyncio.Semaphore(IN_LINE)
            for number in count(begin):
                await room.acquire()
                log.append(event(number)).add_done_callback(partial(told, number, room))

    def told(number: int, room: asyncio.Semaphore, _: asyncio.Future[int]) -> None:
        acknowledge.send_bytes(NUMBER.pack(number))
        room.release()

    asyncio.run(write())


def acknowledged(path: Path, begin: int) -> set[int]:
    """The lines that a writer had said were durable before it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["storage.log"])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=stream, args=(path, begin, theirs))
    process.start()
    theirs.close()
    with closing(mine), suppress(EOFError):
        numbers = {NUMBER.unpack(mine.recv_bytes())[0]}
        killer = Timer(random.uniform(0, LONGEST), process.kill)
        killer.start()
        numbers.update(_received(mine))
    killer.join()
    process.join()
    process.close()
    return numbers


def _received(mine: Connection) -> Iterator[int]:
    with suppress(EOFError):
        while True:
            yield NUMBER.unpack(mine.recv_bytes())[0]


@pytest.mark.server
@pytest.mark.timeout(600)
def test_every_acknowledged_line_is_there_once_after_each_of_two_hundred_kills(
    tmp_path: Path,
) -> None:
    path = tmp_path / "irc.db"
    told: set[int] = set()
    for number in range(ROUNDS):
        told |= acknowledged(path, number * PER_ROUND)
        with closing(sqlite3.connect(path)) as file:
            stored = [int(row[0]) for row in file.execute("SELECT text FROM events ORDER BY id")]
            assert len(stored) == len(set(stored))
            assert told <= set(stored)
            assert stored == sorted(stored)
            assert file.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            assert file.execute("SELECT sum(lines) FROM partitions").fetchone()[0] == len(stored)
            assert file.execute("SELECT lines FROM totals").fetchone()[0] == len(stored)
    assert len(told) > ROUNDS
