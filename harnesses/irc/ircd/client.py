"""A client of the embedded IRC server: its connection, and what is known of it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from harnesses.irc.protocol.message import LineBuffer, Message, Source
from harnesses.irc.transport.irc3_compat import irc3d

if TYPE_CHECKING:
    from harnesses.irc.ircd.server import Server

LINE = 510
"""Bytes of a line to a client, without its CRLF."""

SEND_QUEUE = 1024 * 1024
"""Bytes that may wait for a client that does not read."""

QUIET, REGISTER_WITHIN = 120.0, 60.0
"""Seconds: silence before a PING and again before the end; time to become registered."""


class Client(irc3d.IrcClient):  # type: ignore[misc]
    """irc3d's client with bytes that stay what they are.

    Texts are `str` in which bytes that are not UTF-8 are surrogates, so that they leave as they
    came. `data` and `fwrite` are those that plugins of irc3d know.
    """

    def __init__(self, factory: Server) -> None:
        self.factory = factory
        self.negotiating = False
        self.away = ""
        self._buffer = LineBuffer(lambda line: line.decode("utf-8", "surrogateescape"))
        self._pinged = False

    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        self._timer = self.factory.loop.call_later(REGISTER_WITHIN, self._check)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.data["data_received"] = time.time()
        self._pinged = False
        for line in self._buffer.feed(data):
            if self.closed:
                return
            self.factory.on_line(self, line.replace("\0", "").replace("\r", ""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._timer.cancel()
        self.closed = True
        self.factory.clients.pop(self.uuid, None)
        self.factory.disconnect(self, "Connection closed")
        self.factory.notify("connection_lost", client=self)

    @property
    def registered(self) -> bool:
        """Whether the client has been welcomed."""
        return "signon" in self.data

    @property
    def source(self) -> Source:
        """The client as others see it."""
        return Source(self.nick, self.data["username"], self.data["host"])

    def write(self, data: str | None) -> None:
        """Send lines as they are, each cut at the protocol's length."""
        for line in (data or "").rstrip("\r\n").split("\r\n"):
            self.factory.dispatch(line, client=self, iotype="out")
            if not self.closed and not self.transport.is_closing():
                self.transport.write(_cut(line.encode("utf-8", "surrogateescape")) + b"\r\n")
        if not self.closed and self.transport.get_write_buffer_size() > SEND_QUEUE:
            self.closed = True
            self.transport.abort()

    def send(self, message: Message) -> None:
        """Send one message."""
        self.write(message.render())

    def reply(self, numeric: str, *params: str) -> None:
        """Send a numeric of the server; what users wrote is made to fit in its place."""
        middle = [_word(param) for param in params[:-1]]
        me = self.data.get("nick") or "*"
        self.send(Message(numeric, (me, *middle, params[-1]), Source(self.data["srv"])))

    def end(self, reason: str) -> None:
        """Say why, and close when it is written."""
        if not self.closed:
            self.send(Message("ERROR", (f"Closing link: {reason}",)))
            self.closed = True
            self.transport.close()

    def _check(self) -> None:
        idle = time.time() - self.data["data_received"]
        if not self.registered or (self._pinged and idle >= QUIET):
            self.end("Ping timeout")
            return
        if idle >= QUIET:
            self._pinged = True
            self.send(Message("PING", (self.data["srv"],)))
        self._timer = self.factory.loop.call_later(QUIET, self._check)


def _word(text: str) -> str:
    return text.strip().partition(" ")[0].lstrip(":") or "*"


def _cut(line: bytes) -> bytes:
    """At most `LINE` bytes, not ending within a character of UTF-8."""
    if len(line) <= LINE:
        return line
    end = LINE
    while end > LINE - 4 and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[: end if line[end] & 0xC0 != 0x80 else LINE]
