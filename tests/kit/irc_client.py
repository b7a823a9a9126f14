"""Plain IRC client for tests: sends raw bytes and keeps everything it receives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kit.patience import PATIENCE


class IrcClient:
    """One connection to an IRC server; answers PING automatically.

    `received` holds every line as bytes, without its line end. `expect` searches from after the
    last match, so a test expects lines in their order.
    """

    def __init__(self, port: int, nick: str = "alice", host: str = "127.0.0.1") -> None:
        self.host, self.port, self.nick = host, port, nick
        self.received: list[bytes] = []
        self.closed = False
        self._position = 0
        self._news = asyncio.Condition()

    async def __aenter__(self) -> IrcClient:
        """Open the TCP connection; `register` is a separate step."""
        self._reader, self._writer = await asyncio.open_connection(
            self.host, self.port, limit=1 << 20
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    @property
    def lines(self) -> list[str]:
        """Everything received, as text; bytes that are not UTF-8 become surrogates."""
        return [_text(line) for line in self.received]

    async def register(self, *capabilities: str) -> IrcClient:
        """Register with `nick`, requesting any `capabilities`; wait for the end of the MOTD."""
        if capabilities:
            await self.send("CAP LS 302")
        await self.send(f"NICK {self.nick}")
        await self.send(f"USER {self.nick} 0 * :Test client")
        if capabilities:
            await self.send(f"CAP REQ :{' '.join(capabilities)}")
            await self.expect(r" CAP \S+ ACK ")
            await self.send("CAP END")
        await self.expect(r"^\S+ (376|422) |^@\S+ \S+ (376|422) ")
        return self

    async def become_operator(self) -> None:
        """Become an operator of an InspIRCd that has `OPERATORS` of tests/kit/ircd.py."""
        await self.send("OPER root root")
        await self.expect(" 381 ")

    async def send(self, line: str | bytes) -> None:
        """Send one line; a str may carry bytes as surrogates."""
        data = line if isinstance(line, bytes) else line.encode("utf-8", "surrogateescape")
        self._writer.write(data + b"\r\n")
        await self._writer.drain()

    async def send_raw(self, data: bytes) -> None:
        """Send bytes exactly as they are, with no line end added."""
        self._writer.write(data)
        await self._writer.drain()

    async def join(self, channel: str) -> None:
        """Join and wait for the end of the list of names."""
        await self.send(f"JOIN {channel}")
        await self.expect(rf" 366 \S+ {re.escape(channel)} ")

    async def meet(self, channel: str = "#terrarium") -> None:
        """Join, and wait until Terra is in the channel too."""
        await self.join(channel)
        if not any(" 353 " in line and "Terra" in line for line in self.lines):
            await self.expect(rf":Terra!\S+ JOIN :?{re.escape(channel)}")

    async def rename(self, nick: str) -> None:
        """Take another nick."""
        await self.send(f"NICK {nick}")
        await self.expect(f"NICK :?{nick}$")
        self.nick = nick

    async def quit(self) -> None:
        """Leave, and wait until the server has closed the connection."""
        await self.send("QUIT")
        await self.wait_closed()

    async def say(self, target: str, text: str | bytes) -> None:
        """Send a PRIVMSG."""
        body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        await self.send(b"PRIVMSG " + target.encode() + b" :" + body)

    async def ask(self, words: str, answer: str, room: str = "#terrarium") -> re.Match[str]:
        """Say `words`; return the match of the next line that contains `answer`."""
        await self.say(room, words)
        return await self.expect(answer)

    async def told(self, words: str, room: str = "#terrarium") -> str:
        """Say `words` to the bot; return the notice that comes back, without its channel."""
        await self.say(room, words)
        return (await self.expect(rf":Terra!\S+ NOTICE {self.nick} :(?:\[\S+\] )?(.*)$"))[1]

    async def reply_to(self, words: str, room: str = "#terrarium") -> str:
        """Say `words` on a channel; return the first line with which the bot replies."""
        await self.say(room, words)
        return (await self.expect(rf":Terra!\S+ PRIVMSG {room} :{self.nick}: (.*)$"))[1]

    async def answer_to(self, words: str, target: str = "Terra") -> str:
        """Say `words` to the bot or on a channel; return its answer, said or as a notice."""
        await self.say(target, words)
        answer = r":Terra!\S+ (?:PRIVMSG|NOTICE) \S+ :(?!.*still working on it, one moment\.$)(.*)$"
        return (await self.expect(answer))[1]

    async def ping(self) -> None:
        """Wait until the bot answers `.ping`: by then it has read all that was said before."""
        assert await self.reply_to(".ping") == "pong"

    async def expect(self, pattern: str, timeout: float = PATIENCE) -> re.Match[str]:  # noqa: ASYNC109
        """Return the match of the next line that contains `pattern`.

        Raises AssertionError after `timeout` seconds or when the server closes the connection.
        """
        regex = re.compile(pattern)
        start = self._position
        try:
            async with asyncio.timeout(timeout), self._news:
                while not (match := self._next(regex)):
                    if self.closed:
                        raise AssertionError(self._failure(pattern, start, "the server closed"))
                    await self._news.wait()
                return match
        except TimeoutError:
            raise AssertionError(self._failure(pattern, start, f"waited {timeout} s")) from None

    async def settle(self) -> None:
        """Wait until the server has processed everything sent so far (a PING's round trip).

        Like `expect`, skips the lines before the PONG.
        """
        self._pings = getattr(self, "_pings", 0) + 1
        await self.send(f"PING :settle-{self._pings}")
        await self.expect(rf"PONG .*settle-{self._pings}")

    async def wait_closed(self) -> None:
        """Wait until the server has closed the connection. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: self.closed)

    def _next(self, regex: re.Pattern[str]) -> re.Match[str] | None:
        while self._position < len(self.received):
            line = _text(self.received[self._position])
            self._position += 1
            if match := regex.search(line):
                return match
        return None

    def _failure(self, pattern: str, start: int, why: str) -> str:
        seen = "\n".join(repr(line) for line in self.received[start:]) or "(nothing)"
        return f"{self.nick} expected {pattern!r} ({why}), received since then:\n{seen}"

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                if line.startswith(b"PING "):
                    await self.send(b"PONG " + line[5:].rstrip(b"\r\n"))
                async with self._news:
                    self.received.append(line.rstrip(b"\r\n"))
                    self._news.notify_all()
        except ConnectionError:
            pass  # a killed server resets; the test sees `closed`
        async with self._news:
            self.closed = True
            self._news.notify_all()


@asynccontextmanager
async def irc_client(port: int, nick: str, *capabilities: str) -> AsyncIterator[IrcClient]:
    """Connect a client and register it as `nick`."""
    async with IrcClient(port, nick) as client:
        yield await client.register(*capabilities)


@asynccontextmanager
async def irc_member(port: int, nick: str, room: str = "#terrarium") -> AsyncIterator[IrcClient]:
    """Connect a client, register it as `nick`, and have it join a room."""
    async with irc_client(port, nick) as client:
        await client.join(room)
        yield client


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
