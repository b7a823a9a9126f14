"""IRC server scripted line by line by the test, over real sockets, optionally with TLS."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.kit.patience import PATIENCE

WELCOME = b":s 001 Terra :Welcome Terra!~t@h\r\n:s 422 Terra :No MOTD\r\n"


class Wire:
    """The server's end of one connection, controlled by the test.

    Methods that read raise TimeoutError after PATIENCE seconds.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.lines: list[str] = []

    async def until(self, beginning: str) -> str:
        """Read lines until one starts with `beginning`; return that one."""
        while True:
            if (line := await self.line()).startswith(beginning):
                return line

    async def line(self, *but: str) -> str:
        """Return the next line that starts with none of `but`; skip the others."""
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await self._reader.readuntil(b"\r\n")).decode().rstrip("\r\n")
                self.lines.append(line)
                if not line.startswith(but):
                    return line

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._writer.write(data)
        await self._writer.drain()

    async def say(self, *lines: str) -> None:
        """Send lines."""
        await self.send("".join(f"{line}\r\n" for line in lines).encode())

    async def offer(self, capabilities: str) -> list[str]:
        """Offer capabilities, acknowledge all that the client requests, and return these."""
        assert await self.line() == "CAP LS 302"
        await self.say(f"CAP * LS :{capabilities}")
        asked = (await self.until("CAP REQ ")).removeprefix("CAP REQ ").removeprefix(":")
        await self.say(f"CAP * ACK :{asked}")
        return asked.split()

    async def answer(self) -> str:
        """Return the client's next line other than NICK and USER."""
        return await self.line("NICK ", "USER ")

    async def authenticated(self) -> bytes:
        """Return the decoded payload of the client's next AUTHENTICATE messages."""
        # IRCv3 SASL: base64 in chunks of 400 bytes; the first shorter one, or "+", is the last.
        text = ""
        while len(word := (await self.answer()).removeprefix("AUTHENTICATE ")) == 400:
            text += word
        return base64.b64decode(text + word.removesuffix("+" if word == "+" else ""))

    async def welcome(self) -> None:
        """Complete the client's registration and let it join #c."""
        await self.until("USER")
        await self.send(WELCOME)
        await self.until("JOIN #c")
        await self.send(b":Terra!~t@h JOIN #c\r\n:s 366 Terra #c :End\r\n")

    async def at_end(self) -> bytes:
        """Read until the client closes the connection; return b"" if it resets it."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class Listener:
    """A server that hands its connections to the test."""

    def __init__(self) -> None:
        self.port = 0
        self.wires: asyncio.Queue[Wire] = asyncio.Queue()

    async def accept(self) -> Wire:
        """Wait for and return the next connection. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            return await self.wires.get()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    """Listen on a free loopback port; close the port and all connections on exit."""
    listener, writers = Listener(), []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await listener.wires.put(Wire(reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        for writer in writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        server.close()
        await server.wait_closed()
