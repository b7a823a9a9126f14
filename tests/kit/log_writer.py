"""Child process that logs numbered lines as fast as possible and reports the durable ones."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import struct
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from multiprocessing.connection import Connection

from storage.db.address import Address, PostgresSchema
from storage.db.database import Database
from storage.log import ChatLog
from tests.kit.lines import said
from tests.kit.postgres import PostgresServer

IN_LINE = 40  # most lines not yet durable
_NUMBER = struct.Struct("q")


class LogWriterProcess:
    """A writer that numbers its lines from `begin` and runs until it is killed."""

    def __init__(self, address: Address, begin: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["storage.log"])
        self._mine, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_stream, args=(address, begin, theirs))
        self._process.start()
        theirs.close()

    def one(self) -> int:
        """Wait for the next durable line and return its number."""
        number: int = _NUMBER.unpack(self._mine.recv_bytes())[0]
        return number

    def told(self) -> set[int]:
        """Return the numbers of durable lines not returned before, without waiting."""
        numbers = set()
        while self._mine.poll():
            numbers.add(self.one())
        return numbers

    def kill(self) -> set[int]:
        """Kill the writer; return the numbers of durable lines not returned before."""
        self._process.kill()
        self._process.join()
        numbers = set()
        with suppress(EOFError):
            while True:
                numbers.add(self.one())
        self._mine.close()
        self._process.close()
        return numbers


def kill_in_turn(
    server: PostgresServer, address: PostgresSchema, begin: int, longest: float
) -> set[int]:
    """Kill PostgreSQL under a running writer, restart it, then kill the writer.

    Each kill is at a random moment within `longest` seconds. The writer numbers its lines from
    `begin` and has to survive the outage. Returns the numbers of the acknowledged lines.
    """
    writer = LogWriterProcess(address, begin)
    told = {writer.one()}
    time.sleep(random.uniform(0, longest))
    server.kill()
    told |= writer.told()
    server.start()
    before = max(told)
    # At most IN_LINE lines were pending at the kill: a later one was logged after it.
    while max(told) <= before + 2 * IN_LINE:
        told.add(writer.one())
    time.sleep(random.uniform(0, longest))
    return told | writer.kill()


def _stream(address: Address, begin: int, acknowledge: Connection) -> None:
    async def write() -> None:
        async with Database.open(address) as database, ChatLog.open(database) as log:
            room = asyncio.Semaphore(IN_LINE)
            for number in count(begin):
                await room.acquire()
                log.append(said(str(number), time=datetime.now(UTC))).add_done_callback(
                    partial(tell, number, room)
                )

    def tell(number: int, room: asyncio.Semaphore, _: asyncio.Future[int]) -> None:
        acknowledge.send_bytes(_NUMBER.pack(number))
        room.release()

    asyncio.run(write())
