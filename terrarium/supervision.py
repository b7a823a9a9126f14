"""The signals that end a process, among them the end of its supervisor.

A supervisor starts a child with `TERRARIUM_SUPERVISED=1` and a pipe as standard input, which it
never writes to. However the supervisor ends, kill -9 included, the pipe closes: the child reads
the end of file and stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

SUPERVISED = "TERRARIUM_SUPERVISED"


async def parent_gone() -> None:
    """Return when our supervisor has ended; never, in a process that has none."""
    if os.environ.get(SUPERVISED) != "1":
        await asyncio.Event().wait()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    try:
        while await reader.read(1024):
            pass
    finally:
        transport.close()


async def told_to_stop() -> None:
    """Return on SIGTERM, on SIGINT, or when our supervisor has ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(parent_gone())}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
