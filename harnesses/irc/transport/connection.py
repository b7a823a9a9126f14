"""One connection from its first line to its last: socket, session, send queue and watchdog."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Callable, Collection
from typing import Protocol

import structlog

from harnesses.irc.protocol.errors import InvalidMessage, UntrustedCertificate
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import LineBuffer, parse, strip_tags
from harnesses.irc.protocol.sent_lines import LOST, Receipt
from harnesses.irc.session.session import Session
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.send_queue import RATE, SendQueue, Sent
from harnesses.irc.transport.tls import fingerprint

log = structlog.get_logger()

CONNECT_WITHIN, HANDSHAKE_WITHIN, GOODBYE_WITHIN = 30.0, 15.0, 2.0
"""Seconds for a connection to stand, for TLS to begin, and for the other side to end it with us."""

NEXT_ADDRESS_AFTER = 0.25
"""Seconds until the server's next address is tried beside the first (RFC 8305, section 5)."""


class PluginHost(Protocol):
    """Runs the plugins of a network: told of its connections, its nick, and each line without
    tags. A network without plugins has none."""

    def on_connected(self, connection: IrcConnection) -> None:
        """Take a new connection."""

    def on_ready(self) -> None:
        """Take note that the server has welcomed us."""

    def on_closed(self) -> None:
        """Take note that the connection is gone."""

    def on_line(self, line: str, nick: str) -> None:
        """Take a line of the server; `nick` is ours after it."""

    def on_sent(self, line: str) -> None:
        """Take a line of our own that has gone out."""


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


class IrcClient:
    """A session on a connection.

    `on_event` gets each event in the order of arrival, `changed` is called after each line; then
    come the `plugins`, where there are some.
    Of `trusted` fingerprints, when there are any, the server's certificate must have one.
    `silence` is the time in seconds without a word of the server after which we ask; after as
    much again it counts as gone.
    """

    def __init__(
        self,
        session: Session,
        on_event: Callable[[IrcEvent], None],
        changed: Callable[[], None],
        plugins: PluginHost | None,
        silence: float,
        trusted: Collection[str] = (),
        rate: float = RATE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session, self._plugins, self._silence = session, plugins, silence
        self._on_event, self._changed = on_event, changed
        self._connection = IrcConnection(self._on_open, self._on_line, trusted)
        self._send_queue = SendQueue(self._write, rate)
        self._opening = asyncio.timeout(CONNECT_WITHIN)
        self._receipts: dict[str, asyncio.Future[Receipt]] = {}
        self._heard = self._loop.time()
        self._pings: dict[str, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        state = "open" if self._connection.transport else "not open"
        return f"<IrcClient {self._session.network} as {self._session.nick}, {state}>"

    async def open(self, server: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connect. Raises OSError (a TimeoutError is one) or UnicodeError for an odd name."""
        async with self._opening:
            await self._loop.create_connection(
                lambda: self._connection,
                server,
                port,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_WITHIN if tls else None,
                ssl_shutdown_timeout=GOODBYE_WITHIN if tls else None,
                happy_eyeballs_delay=None if _is_address(server) else NEXT_ADDRESS_AFTER,
            )

    def silent_for(self) -> float:
        """Return the seconds since the last word of the server."""
        return self._loop.time() - self._heard

    async def wait_closed(self) -> Exception | None:
        """Watch over the connection until it is gone; return why, if the server did not close it.

        A server that falls silent is asked with a PING, and dropped when it does not answer.
        """
        asked_at = 0.0
        while not self._connection.lost.done():
            now = self._loop.time()
            idle, asked = now - self._heard, asked_at > self._heard
            if asked and idle >= 2 * self._silence:
                log.warning("irc.silent", network=self._session.network, seconds=round(idle))
                self._connection.abort()
            elif not asked and idle >= self._silence:
                asked, asked_at = True, now
                self.send_line("PING :alive", urgent=True)
            patience = self._silence * (2 if asked else 1) - idle
            await asyncio.wait([self._connection.lost], timeout=max(patience, 0.01))
        return self._connection.lost.result()

    async def wait_disconnected(self, within: float) -> None:
        """Wait until the server has closed the connection; after `within` seconds drop it.

        One that does not stand yet is not waited for: `open` fails.
        """
        if not self._connection.transport:
            if not self._opening.expired():
                self._opening.reschedule(self._loop.time())
            return
        await asyncio.wait([self._connection.lost], timeout=within)
        self._connection.abort()

    def send_line(self, line: str, urgent: bool = False) -> Sent:
        """Send a line as soon as pacing lets it go."""
        return self._send_queue.send(line, urgent)

    def restrict(self, may_speak: Callable[[], bool]) -> None:
        """Write no message to anybody, queued ones included, while we may not speak."""
        self._send_queue.may_write = lambda line: may_speak() or not _is_message(line)

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Go on by these settings, and ask for the nick that they name."""
        self._session.claim_nick(settings)
        self._flush()

    async def lag(self) -> float | None:
        """Return the seconds until the server answers, None when the connection goes before that.
        Does not return while neither happens."""
        began = self._loop.time()
        token, answered = f"lag-{began}", self._loop.create_future()
        self._pings[token] = answered
        try:
            self.send_line(f"PING :{token}", urgent=True)
            await asyncio.wait({answered})
        finally:
            del self._pings[token]
        return None if answered.cancelled() else self._loop.time() - began

    def receipt(self, number: str) -> asyncio.Future[Receipt]:
        """Return what becomes of a line that the session tracks under this number."""
        return self._receipts.setdefault(number, self._loop.create_future())

    def close(self) -> None:
        """Drop the connection and all that waits for it."""
        self._send_queue.close()
        for receipt in self._receipts.values():
            if not receipt.done():
                receipt.set_result(LOST)
        self._receipts.clear()
        for answered in self._pings.values():
            if not answered.done():
                answered.cancel()
        self._connection.abort()
        self._session.roster.clear()
        if self._plugins:
            self._plugins.on_closed()

    def _on_open(self, connection: IrcConnection) -> None:
        self._heard = self._loop.time()
        self._send_queue.open()
        if self._plugins:
            self._plugins.on_connected(connection)
        self._session.start()
        self._flush()

    def _on_line(self, line: str) -> None:
        self._heard = self._loop.time()
        if not (message := parse(line)):
            return
        pinged = self._pings.get(message.param(-1)) if message.command == "PONG" else None
        if pinged and not pinged.done():
            pinged.set_result(None)
        for event in self._session.receive(message):
            self._on_event(event)
        if self._receipts:
            self._take_receipts()
        self._flush()
        self._changed()
        if self._plugins:
            self._plugins.on_line(strip_tags(line), self._session.nick)
        # An STS upgrade (https://ircv3.net/specs/extensions/sts) forbids another word in the clear,
        # and ERROR is the last that a server says.
        if self._session.upgrade or self._session.error is not None:
            self._connection.abort()

    def _take_receipts(self) -> None:
        for number, known in self._session.receipts():
            if (receipt := self._receipts.pop(number, None)) and not receipt.done():
                receipt.set_result(known)

    def _flush(self) -> None:
        for outgoing in self._session.pop_outgoing():
            try:
                line = outgoing.message.render()
            except InvalidMessage as error:
                log.warning("irc.unsendable", network=self._session.network, error=str(error))
                continue
            if outgoing.delay:
                self._send_queue.later(outgoing.delay, line, outgoing.urgent, outgoing.unless)
            else:
                self._send_queue.send(line, outgoing.urgent, outgoing.idle)

    def _write(self, line: str) -> None:
        self._connection.write(line)
        self._session.wrote(line)
        if self._plugins:
            self._plugins.on_sent(strip_tags(line))


def _is_message(line: str) -> bool:
    return strip_tags(line).startswith(("PRIVMSG ", "NOTICE "))


def _is_address(server: str) -> bool:
    try:
        ipaddress.ip_address(server)
    except ValueError:
        return False
    return True
