"""The asyncio side of one connection, and irc3's bot on top of it.

irc3 is here for its plugins. Its own connection loses bytes, does not know tags, floods and
reconnects by itself; so bytes go through our `IrcConnection` to our session first, and the bot gets
the line afterwards, without tags. What a plugin sends goes out through our splitting and pacing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from harnesses.irc.protocol.errors import UntrustedCertificate
from harnesses.irc.protocol.message import LineBuffer
from harnesses.irc.transport.irc3_compat import LOGGING, irc3
from harnesses.irc.transport.send_queue import Sent
from harnesses.irc.transport.tls import fingerprint

if TYPE_CHECKING:
    from harnesses.irc.transport.network import Network

REPLACED = ("core", "sasl", "autojoins", "userlist")
"""Plugins of irc3 whose work is done here; other plugins may require them, and get us."""


class IrcConnection(asyncio.Protocol):
    """Bytes to lines and lines to bytes.

    `on_connected` is called before any line; `received` with each line, in order. `lost` is done
    when the connection is gone. Where there are `trusted` fingerprints a certificate with another
    ends the connection before a byte is sent.
    """

    def __init__(
        self,
        opened: Callable[[IrcConnection], None],
        received: Callable[[str], None],
        trusted: Collection[str] = (),
    ) -> None:
        self._opened, self._received, self._trusted = opened, received, trusted
        self._buffer = LineBuffer()
        self._fault: Exception | None = None
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        seen = fingerprint(transport)
        if self._trusted and seen and seen not in self._trusted:
            self._fault = UntrustedCertificate(f"the certificate {seen} is not trusted")
            transport.close()  # not abort: the handshake's last words are still to go out
        else:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. What comes after we have closed is nobody's word any more."""
        for line in self._buffer.feed(data):
            if self.transport and not self.transport.is_closing():
                self._received(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if not self.lost.done():
            self.lost.set_result(self._fault or exc)

    def write(self, line: str) -> None:
        """Send one line at once."""
        assert self.transport, "nothing is sent before `opened`"
        if not self.transport.is_closing():
            self.transport.write(line.encode("utf-8", "replace") + b"\r\n")

    def abort(self) -> None:
        """Drop the connection, if there is one, without a word."""
        if self.transport:
            self.transport.abort()


class Bot(irc3.IrcBot):  # type: ignore[misc]
    """irc3's bot without its own connection: plugins are called, and send through `network`."""

    logging_config = LOGGING

    def __init__(self, network: Network, plugins: Iterable[str]) -> None:
        self._network = network
        super().__init__(loop=asyncio.get_running_loop(), asynchronous=False)
        self.registry.includes.update(f"irc3.plugins.{name}" for name in REPLACED)
        self.include(*plugins)
        self.on_nick_change(network.nick)

    def on_connected(self, connection: IrcConnection) -> None:
        """A connection stands."""
        self.protocol = connection
        self.notify("connection_made")

    def on_nick_change(self, nick: str) -> None:
        """Our nick is `nick` now: events that mention it listen to the new one."""
        if self.config["nick"] != nick:
            self.config["nick"] = nick
            self.recompile()

    def recompile(self) -> None:
        """Compile all events anew. irc3's own does not store what it has compiled, and takes a
        nick for a regular expression."""
        config = {**self.config, "nick": re.escape(self.config["nick"])}
        for iotype, compiled in self.registry.events_re.items():
            events = self.registry.events[iotype]
            compiled[:] = [(regexp, events[regexp][0].compile(config)) for regexp, _ in compiled]

    @property
    def channels(self) -> dict[str, set[str]]:
        """The nicks by channel, as irc3's own `userlist` offers them."""
        return {name: set(self._network.members(name)) for name in self._network.channels}

    def send_line(self, data: str, nowait: bool = False) -> Sent:
        """Send one raw line; a plugin cannot overtake, `nowait` or not."""
        return self._network.send_line(data)

    def send(self, data: str) -> None:
        """Send raw lines."""
        for line in data.rstrip("\r\n").split("\n"):
            self._network.send_line(line)

    def privmsg(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a text, cut into lines."""
        return self._network.say("PRIVMSG", target, message)

    def notice(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send a notice, cut into lines."""
        return self._network.say("NOTICE", target, message)

    def action(self, target: str, message: str, nowait: bool = False) -> Sent | None:
        """Send an action, cut into lines."""
        return self._network.say("ACTION", target, message)

    def join(self, target: str) -> None:
        """Join a channel and stay."""
        self._network.join(target)

    def part(self, target: str, reason: str | None = None) -> None:
        """Leave a channel for good."""
        self._network.part(target, reason or "")

    def quit(self, reason: str | None = None) -> None:
        """Leave the network for good."""
        self._network.close(reason or "")
