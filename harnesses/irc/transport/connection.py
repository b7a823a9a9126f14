"""One connection to a server: socket, session, send queue and watchdog.

A token bucket limits the rate of the send queue, as servers disconnect clients that send too fast
("Excess Flood").
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import structlog

from harnesses.irc.protocol.errors import InvalidMessage, UntrustedCertificate
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import LineBuffer, parse, strip_tags
from harnesses.irc.protocol.sent_lines import LOST, Receipt
from harnesses.irc.session.session import Session
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.tls import fingerprint

T = TypeVar("T")

# RFC 1459, section 8.10: each message adds 2 seconds to a timer that may be 10 seconds ahead, which
# allows a burst of five lines. Servers count bytes too, so long lines cost more.

BURST = 5.0
"""Capacity of the bucket in tokens."""

RATE = 1.0
"""Tokens refilled per second."""

FREE_BYTES = 100
"""Bytes of a line that are covered by its first token."""

BYTES_PER_TOKEN = 300
"""Bytes beyond `FREE_BYTES` that cost one token."""


def cost(size: int) -> float:
    """Return the cost in tokens of a line of `size` bytes."""
    return 1.0 + max(0, size - FREE_BYTES) / BYTES_PER_TOKEN


class TokenBucketQueue(Generic[T]):
    """A rate-limited queue with three priorities, paced by a token bucket.

    Urgent items go first and cost nothing. They are what the protocol requires (registration, PONG,
    QUIT), never replies, or people could make us exceed the limit. Idle items (queries of our own)
    go last. `clock` returns monotonic seconds.
    """

    def __init__(
        self, clock: Callable[[], float], burst: float = BURST, rate: float = RATE
    ) -> None:
        self._clock, self._burst, self._rate = clock, burst, rate
        self._tokens, self._filled = burst, clock()
        self._urgent: deque[T] = deque()
        self._waiting: deque[tuple[float, T]] = deque()
        self._idle: deque[tuple[float, T]] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._waiting) + len(self._idle)

    def push(self, item: T, size: int, urgent: bool = False, idle: bool = False) -> None:
        """Append an item that takes `size` bytes on the wire."""
        if urgent:
            self._urgent.append(item)
        else:  # an item that costs more than a full bucket would never go out
            queue = self._idle if idle else self._waiting
            queue.append((min(cost(size), self._burst), item))

    def pop(self) -> T | None:
        """Remove and return the next item that may go out now, or None."""
        if self._urgent:
            return self._urgent.popleft()
        self._fill()
        queue = self._waiting or self._idle
        if not queue or self._tokens < queue[0][0]:
            return None
        price, item = queue.popleft()
        self._tokens -= price
        return item

    def delay(self) -> float | None:
        """Return the seconds until `pop` returns an item; None if the queue is empty."""
        if self._urgent:
            return 0.0
        self._fill()
        queue = self._waiting or self._idle
        return max(0.0, (queue[0][0] - self._tokens) / self._rate) if queue else None

    def discard_unwanted(self, wanted: Callable[[T], bool]) -> None:
        """Drop the items that are not urgent and for which `wanted` is false, at no cost."""
        self._waiting = deque(entry for entry in self._waiting if wanted(entry[1]))
        self._idle = deque(entry for entry in self._idle if wanted(entry[1]))

    def clear(self) -> list[T]:
        """Empty the queue; return the items that were in it."""
        items = [*self._urgent, *(item for _, item in (*self._waiting, *self._idle))]
        for queue in (self._urgent, self._waiting, self._idle):
            queue.clear()
        return items

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now


Sent = asyncio.Future[bool]
"""Resolves to True once a line is written, or to False if it never will be."""


class SendQueue:
    """The send queue of one connection; it writes lines at the pace of a `TokenBucketQueue`.

    `rate` is in tokens per second. Lines sent before `open` or after `close` are not written.
    """

    def __init__(self, write: Callable[[str], None], rate: float = RATE) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._pacing: TokenBucketQueue[tuple[str, Sent]] = TokenBucketQueue(
            self._loop.time, rate=rate
        )
        self._timers: set[asyncio.TimerHandle] = set()
        self._next: asyncio.TimerHandle | None = None
        self._is_open = False
        self.may_write: Callable[[str], bool] | None = None
        """Filter that is asked right before a line is written; False discards the line."""

    def open(self) -> None:
        """Accept lines from now on: the connection is established."""
        self._is_open = True

    def send(self, line: str, urgent: bool = False, idle: bool = False) -> Sent:
        """Queue `line`, which has no line end; cancel the result to withdraw it."""
        sent: Sent = self._loop.create_future()
        if not self._is_open:
            sent.set_result(False)
        else:
            size = len(line.encode("utf-8", "replace")) + 2
            self._pacing.push((line, sent), size, urgent, idle)
            self._pump()
        return sent

    def later(
        self,
        delay: float,
        line: str,
        urgent: bool = False,
        unless: Callable[[], bool] | None = None,
    ) -> None:
        """Queue `line` in `delay` seconds; drop it if `unless()` is true then, or after `close`."""

        def due() -> None:
            self._timers.discard(timer)
            if not (unless and unless()):
                self.send(line, urgent)

        timer = self._loop.call_later(delay, due)
        self._timers.add(timer)

    def close(self) -> None:
        """Discard all lines that are not written yet; their results become False."""
        self._is_open = False
        for timer in (*self._timers, self._next):
            if timer:
                timer.cancel()
        self._timers.clear()
        for _, sent in self._pacing.clear():
            if not sent.done():
                sent.set_result(False)

    def _pump(self) -> None:
        # A result that is done here was cancelled by the sender.
        self._pacing.discard_unwanted(lambda entry: not entry[1].done())
        while entry := self._pacing.pop():
            line, sent = entry
            is_written = self.may_write is None or self.may_write(line)
            if is_written:
                self._write(line)
            sent.set_result(is_written)
        if self._next:
            self._next.cancel()
        delay = self._pacing.delay()
        self._next = None if delay is None else self._loop.call_later(delay, self._pump)


log = structlog.get_logger()

CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, GOODBYE_TIMEOUT = 30.0, 15.0, 2.0
"""Timeouts in seconds for connecting, for the TLS handshake and for the TLS shutdown."""

NEXT_ADDRESS_DELAY = 0.25
"""Seconds until the server's next address is tried in parallel (RFC 8305, section 5)."""


class PluginHost(Protocol):
    """The host of a network's plugins. It gets all lines without message tags."""

    def on_connected(self, connection: IrcConnection) -> None:
        """Handle a new connection, before any of its lines."""

    def on_ready(self) -> None:
        """Handle the end of the registration."""

    def on_closed(self) -> None:
        """Handle the end of the connection."""

    def on_line(self, line: str, nick: str) -> None:
        """Handle a received line; `nick` is our nick after it."""

    def on_sent(self, line: str) -> None:
        """Handle a line that we have written."""


class IrcConnection(asyncio.Protocol):
    """The asyncio protocol of a connection: converts bytes to lines and lines to bytes.

    `opened` is called once, before any line; `received` with each line, in order. `lost` resolves
    when the connection is closed, to the exception that closed it or None. If there are `trusted`
    fingerprints, a server with another certificate is disconnected before a line is sent.
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
            transport.close()  # unlike abort, flushes the end of the TLS handshake
        else:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        for line in self._buffer.feed(data):
            # Handling a line may close the connection, as an STS upgrade does; the lines after it
            # in the same read must not be handled.
            if self.transport and not self.transport.is_closing():
                self._received(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if not self.lost.done():
            self.lost.set_result(self._fault or exc)

    def write(self, line: str) -> None:
        """Write one line, bypassing the send queue; do nothing on a closing connection."""
        assert self.transport, "nothing is sent before `opened`"
        if not self.transport.is_closing():
            self.transport.write(line.encode("utf-8", "replace") + b"\r\n")

    def abort(self) -> None:
        """Close the connection at once, if there is one, without flushing."""
        if self.transport:
            self.transport.abort()


class IrcClient:
    """A session running on a connection.

    For each received line, `on_event` gets its events in order, then `changed` is called, then the
    `plugins` get the line.
    If there are `trusted` fingerprints, the server's certificate must have one of them.
    After `silence` seconds without a line from the server we send PING; after as many again the
    connection is dropped.
    `rate` is the rate limit of sent lines in tokens per second.
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
        self._opening = asyncio.timeout(CONNECT_TIMEOUT)
        self._receipts: dict[str, asyncio.Future[Receipt]] = {}
        self._heard = self._loop.time()
        self._pings: dict[str, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        state = "open" if self._connection.transport else "not open"
        return f"<IrcClient {self._session.network} as {self._session.nick}, {state}>"

    async def open(self, server: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connect, with TLS if there is a context.

        Raises OSError, TimeoutError included, and UnicodeError for an invalid host name.
        """
        async with self._opening:
            await self._loop.create_connection(
                lambda: self._connection,
                server,
                port,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if tls else None,
                ssl_shutdown_timeout=GOODBYE_TIMEOUT if tls else None,
                happy_eyeballs_delay=None if _is_address(server) else NEXT_ADDRESS_DELAY,
            )

    def silent_for(self) -> float:
        """Return the seconds since the last line from the server."""
        return self._loop.time() - self._heard

    async def wait_closed(self) -> Exception | None:
        """Run the watchdog until the connection is closed; return the exception that closed it.

        Return None if the server closed it. A silent server gets a PING, and the connection is
        dropped if nothing follows.
        """
        asked_at = 0.0
        while not self._connection.lost.done():
            # Any line after the PING proves that the server is alive, not only its PONG.
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
        """Wait at most `within` seconds until the server closes the connection, then drop it.

        A connection that is not established yet is abandoned: `open` raises TimeoutError.
        """
        if not self._connection.transport:
            if not self._opening.expired():  # move the deadline of the running `open` to now
                self._opening.reschedule(self._loop.time())
            return
        await asyncio.wait([self._connection.lost], timeout=within)
        self._connection.abort()

    def send_line(self, line: str, urgent: bool = False, idle: bool = False) -> Sent:
        """Queue a line in the send queue."""
        return self._send_queue.send(line, urgent, idle)

    def restrict(self, may_speak: Callable[[], bool]) -> None:
        """Discard all PRIVMSG, NOTICE and TAGMSG, queued ones included, while `may_speak()` is
        false."""
        # The check is made when a line is written: a lease may run out while lines are queued.
        self._send_queue.may_write = lambda line: may_speak() or not _is_message(line)

    def claim_nick(self, settings: NetworkSettings) -> None:
        """Switch to `settings` and request the nick that they name."""
        self._session.claim_nick(settings)
        self._flush()

    async def lag(self) -> float | None:
        """Measure the seconds until the server answers a PING; None if the connection is closed.

        There is no timeout of its own.
        """
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
        """Return the future receipt of the line that the session tracks under this id."""
        return self._receipts.setdefault(number, self._loop.create_future())

    def close(self) -> None:
        """Drop the connection; pending receipts become LOST and pending PINGs are cancelled."""
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
        # After an STS upgrade (https://ircv3.net/specs/extensions/sts) nothing more may be sent on
        # the unencrypted connection; ERROR is the last line of a server.
        if self._session.upgrade or self._session.error is not None:
            self._connection.abort()

    def _take_receipts(self) -> None:
        for number, known in self._session.receipts():
            if (receipt := self._receipts.pop(number, None)) and not receipt.done():
                receipt.set_result(replace(known, nick=self._session.nick))

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
    return strip_tags(line).startswith(("PRIVMSG ", "NOTICE ", "TAGMSG "))


def _is_address(server: str) -> bool:
    try:
        ipaddress.ip_address(server)
    except ValueError:
        return False
    return True
