"""Small real processes that report their start and end to a test.

Each keeps a connection to the test open, which the kernel closes however the process ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.kit.patience import PATIENCE

_SCRIPT = """
import os, signal, socket, subprocess, sys
port, name, manner, *more = sys.argv[1:]
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
line = socket.create_connection(("127.0.0.1", int(port)))
line.sendall(f"{name} {os.getpid()}\\n".encode())
if manner == "parent":
    subprocess.Popen([sys.executable, "-c", more[0], str(port), name + "-child", "stubborn"])
if manner.startswith("exit"):
    line.recv(1)
    sys.exit(int(manner[4:]))
if manner == "obedient":
    sys.stdin.read()
else:
    signal.pause()
"""


@dataclass(slots=True)
class Life:
    """A process; `gone` is set when it has ended."""

    name: str
    pid: int
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def ended(self) -> None:
        """Wait until the process has ended. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            await self.gone.wait()

    async def let_go(self) -> None:
        """Let a process of the manner "exitN" exit."""
        self.writer.write(b".")
        await self.writer.drain()


class Lives:
    """The server to which the processes report. Create one with `lives()`."""

    def __init__(self) -> None:
        self.port = 0
        self._born: asyncio.Queue[Life] = asyncio.Queue()

    def command(self, name: str, manner: str) -> list[str]:
        """Return the command line of a process.

        Manners: "obedient" ends with its standard input or on SIGTERM; "stubborn" ignores SIGTERM;
        "parent" starts a stubborn child "NAME-child"; "exitN" exits with status N after `let_go`.
        """
        return [sys.executable, "-c", _SCRIPT, str(self.port), name, manner, _SCRIPT]

    async def born(self) -> Life:
        """Wait for and return the next started process. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            return await self._born.get()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle the connection of one process until the process ends."""
        name, pid = (await reader.readline()).decode().split()
        life = Life(name, int(pid), writer)
        self._born.put_nowait(life)
        try:
            await reader.read()
        except ConnectionError:
            pass  # killed with unread data: the kernel resets the connection
        finally:
            life.gone.set()
            writer.close()


@asynccontextmanager
async def lives() -> AsyncIterator[Lives]:
    """Run the server to which processes report."""
    place = Lives()
    server = await asyncio.start_server(place.take, "127.0.0.1", 0)
    async with server:
        place.port = server.sockets[0].getsockname()[1]
        yield place
