"""One connection from its first line to its last: session, outbox, watchdog and bot together."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection

import structlog

from harnesses.irc.protocol.errors import InvalidMessage
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import parse, strip_tags
from harnesses.irc.session.session import Session
from harnesses.irc.transport.connection import Bot, IrcConnection
from harnesses.irc.transport.send_queue import RATE, SendQueue, Sent

log = structlog.get_logger()

CONNECT_WITHIN, GOODBYE_WITHIN = 30.0, 2.0
"""Seconds for a connection to stand, and for the other side of TLS to end it with us."""


class IrcClient:
    """A session on a connection.

    `on_event` gets each event in the order of arrival, `changed` is called after each line.
    Of `trusted` fingerprints, when there are any, the server's certificate must have one.
    `silence` is the time in seconds without a word of the server after which we ask; after as
    much again it counts as gone.
    """

    def __init__(
        self,
        session: Session,
        bot: Bot,
        on_event: Callable[[IrcEvent], None],
        changed: Callable[[], None],
        silence: float,
        trusted: Collection[str] = (),
        rate: float = RATE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session, self._bot, self._silence = session, bot, silence
        self._on_event, self._changed = on_event, changed
        self._connection = IrcConnection(self._on_open, self._on_line, trusted)
        self._send_queue = SendQueue(self._write, rate)
        self._opening = asyncio.timeout(CONNECT_WITHIN)
        self._receipts: dict[str, Sent] = {}
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
                ssl_shutdown_timeout=GOODBYE_WITHIN if tls else None,
            )

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

    async def lag(self) -> float:
        """Seconds until the server answers; for ever, when it does not."""
        began = self._loop.time()
        token, answered = f"lag-{began}", self._loop.create_future()
        self._pings[token] = answered
        try:
            self.send_line(f"PING :{token}", urgent=True)
            await answered
        finally:
            del self._pings[token]
        return self._loop.time() - began

    def ack(self, label: str) -> Sent:
        """Done when the server has said whether the line with this label went through."""
        return self._receipts.setdefault(label, self._loop.create_future())

    def close(self) -> None:
        """Drop the connection and all that waits for it."""
        self._send_queue.close()
        for receipt in self._receipts.values():
            if not receipt.done():
                receipt.set_result(False)
        self._receipts.clear()
        self._connection.abort()
        self._session.roster.clear()
        self._bot.notify("connection_lost")

    def _on_open(self, connection: IrcConnection) -> None:
        self._heard = self._loop.time()
        self._send_queue.open()
        self._bot.on_connected(connection)
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
        for label, through in self._session.receipts():
            if (receipt := self._receipts.pop(label, None)) and not receipt.done():
                receipt.set_result(through)
        self._flush()
        self._bot.on_nick_change(self._session.nick)
        self._changed()
        self._bot.dispatch(strip_tags(line))
        if self._session.upgrade or self._session.error is not None:
            self._connection.abort()  # nothing is to be said here any more

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
        self._bot.dispatch(strip_tags(line), iotype="out")
