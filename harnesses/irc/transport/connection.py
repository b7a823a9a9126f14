"""One connection to a server: socket, TLS, send queue and watchdog.

A token bucket limits the rate of the send queue, as servers disconnect clients that send too fast
("Excess Flood").
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from harnesses.irc.protocol.errors import InvalidMessage, UntrustedCertificate
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.protocol.message import LineBuffer, parse, strip_tags
from harnesses.irc.session import handlers, registration
from harnesses.irc.session.session import Session
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport import socks

log = structlog.get_logger()

# RFC 1459, section 8.10: each message adds 2 seconds to a timer that may be 10 seconds ahead, which
# allows a burst of five lines. Servers count bytes too, so long lines cost more.

BURST, RATE = 5.0, 1.0
"""Capacity of the bucket in tokens, and tokens refilled per second."""

FREE_BYTES, BYTES_PER_TOKEN = 100, 300
"""Bytes of a line that are covered by its first token, and those beyond that cost another one."""

CONNECT_TIMEOUT, HANDSHAKE_TIMEOUT, GOODBYE_TIMEOUT = 30.0, 15.0, 2.0
"""Timeouts in seconds for connecting, for the TLS handshake and for the TLS shutdown."""

NEXT_ADDRESS_DELAY = 0.25
"""Seconds until the server's next address is tried in parallel (RFC 8305, section 5)."""

Sent = asyncio.Future[bool]
"""Resolves to True once a line is written, or to False if it never will be."""


def cost(size: int) -> float:
    """Return the cost in tokens of a line of `size` bytes; never more than a full bucket."""
    return min(1.0 + max(0, size - FREE_BYTES) / BYTES_PER_TOKEN, BURST)


class TokenBucket:
    """A token bucket; `clock` returns monotonic seconds, `rate` is in tokens per second."""

    def __init__(self, clock: Callable[[], float], rate: float = RATE) -> None:
        self._clock, self._rate = clock, rate
        self._tokens, self._filled = BURST, clock()

    def take(self, price: float) -> float:
        """Remove `price` tokens and return 0.0, or else the seconds until there are so many."""
        now = self._clock()
        self._tokens = min(BURST, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < price:
            return (price - self._tokens) / self._rate
        self._tokens -= price
        return 0.0


@dataclass(frozen=True, slots=True)
class _Queued:
    """A line that waits, the turn of its sender (with None it is a turn by itself), and what to
    call once it is written."""

    line: str
    sent: Sent
    turn: object
    written: Callable[[], object] | None


class SendQueue:
    """The send queue of one connection, with three priorities, paced by a `TokenBucket`.

    Between them, the `senders` of ordinary lines take turns, so that nobody waits for all that
    others have caused; lines with the same `turn` stay together.

    Urgent lines go first and cost nothing. They are what the protocol requires (registration, PONG,
    QUIT), never replies, or people could make us exceed the limit. Idle lines (queries of our own)
    go last. Lines sent before `open` or after `close` are not written. `write` returns whether it
    has written a line or discarded it.
    """

    def __init__(self, write: Callable[[str], bool], rate: float = RATE) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._bucket = TokenBucket(self._loop.time, rate)
        self._urgent, self._idle = deque[_Queued](), deque[_Queued]()
        self._waiting: OrderedDict[str, deque[_Queued]] = OrderedDict()
        self._timers: set[asyncio.TimerHandle] = set()
        self._next: asyncio.TimerHandle | None = None
        self._is_open = False

    def open(self) -> None:
        """Accept lines from now on: the connection is established."""
        self._is_open = True

    def send(
        self,
        line: str,
        urgent: bool = False,
        idle: bool = False,
        sender: str = "",
        turn: object = None,
        written: Callable[[], object] | None = None,
    ) -> Sent:
        """Queue `line`, which has no line end; cancel the result to withdraw it.

        `written` is called as soon as it is written, before anything can be read. What waits for
        the result learns of it later: the server's answer may have been read by then.
        """
        sent: Sent = self._loop.create_future()
        if not self._is_open:
            sent.set_result(False)
            return sent
        if urgent or idle:
            queue = self._urgent if urgent else self._idle
        else:
            queue = self._waiting.setdefault(sender, deque())
        queue.append(_Queued(line, sent, turn, written))
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
        for queue in (self._urgent, *self._waiting.values(), self._idle):
            for each in queue:
                if not each.sent.done():
                    each.sent.set_result(False)
            queue.clear()
        self._waiting.clear()

    def _pump(self) -> None:
        if self._next:
            self._next.cancel()
            self._next = None
        while queue := self._urgent or next(iter(self._waiting.values()), self._idle):
            first = queue[0]
            if not first.sent.done():
                size = len(first.line.encode("utf-8", "replace")) + len("\r\n")
                price = 0.0 if queue is self._urgent else cost(size)
                if delay := self._bucket.take(price):
                    self._next = self._loop.call_later(delay, self._pump)
                    return
            queue.popleft()
            if queue is not self._urgent and self._waiting:
                sender = next(iter(self._waiting))
                if not queue:
                    del self._waiting[sender]
                elif first.turn is None or queue[0].turn is not first.turn:
                    self._waiting.move_to_end(sender)
            if not first.sent.done():  # else it is withdrawn
                is_written = self._write(first.line)
                if is_written and first.written:
                    first.written()
                first.sent.set_result(is_written)


class PluginHost(Protocol):
    """The host of a network's plugins, with the names of irc3's `IrcBot`."""

    def notify(self, event: str) -> None:
        """Handle `connection_made`, `server_ready` or `connection_lost`."""

    def dispatch(self, data: str, iotype: str = "in") -> None:
        """Handle a line without message tags that we have received, or written ("out")."""


class IrcConnection(asyncio.Protocol):
    """A session on a socket: converts bytes to lines and events, and messages to bytes.

    `send_line` queues a line, as `SendQueue.send` does.
    For each received line, `on_event` gets its events in order, then `changed` is called unless the
    line was only talk, then the `plugins` get it.
    If the settings of the session have `tls_fingerprints`, a server with another certificate is
    disconnected before a line is sent.
    While `may_speak()` is false all PRIVMSG, NOTICE and TAGMSG are discarded, queued ones included.
    After `silence` seconds without a line from the server we send PING; after as many again the
    connection is dropped.
    """

    def __init__(
        self,
        session: Session,
        on_event: Callable[[IrcEvent], None],
        changed: Callable[[], None],
        may_speak: Callable[[], bool],
        plugins: PluginHost | None,
        silence: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._session, self._plugins, self._silence = session, plugins, silence
        self._on_event, self._changed, self._may_speak = on_event, changed, may_speak
        self._buffer = LineBuffer()
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[Exception | None] = self._loop.create_future()
        self._fault: Exception | None = None
        self._send_queue = SendQueue(self._write, session.settings.lines_per_second)
        self.send_line = self._send_queue.send
        self._opening = asyncio.timeout(CONNECT_TIMEOUT)
        self._heard = self._loop.time()

    def __repr__(self) -> str:
        state = "open" if self._transport else "not open"
        return f"<IrcConnection {self._session.network} as {self._session.nick}, {state}>"

    async def open(self, server: str, port: int) -> None:
        """Connect, with TLS if the session is to be encrypted. Raises OSError, TimeoutError
        included, and UnicodeError for an invalid host name."""
        settings = self._session.settings
        tls = tls_context(settings) if self._session.encrypted else None
        to: dict[str, Any] = {
            "host": server,
            "port": port,
            "local_addr": (settings.bind, 0) if settings.bind else None,
            # The race of a single address would only take turns of the event loop.
            "happy_eyeballs_delay": None if _is_address(server) else NEXT_ADDRESS_DELAY,
        }
        async with self._opening:
            if settings.socks5:
                proxy = settings.socks5.get_secret_value()
                opened = await socks.connect(proxy, server, port, settings.bind)
                to = {"sock": opened, "server_hostname": server if tls else None}
            await self._loop.create_connection(
                lambda: self,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if tls else None,
                ssl_shutdown_timeout=GOODBYE_TIMEOUT if tls else None,
                **to,
            )

    def silent_for(self) -> float:
        """Return the seconds since the last line from the server."""
        return self._loop.time() - self._heard

    async def wait_closed(self) -> Exception | None:
        """Watch for silence until the connection is closed; return the exception that closed it, or
        None if the server did."""
        asked_at = 0.0
        while not self._lost.done():
            # Any line after the PING proves that the server is alive, not only its PONG.
            now = self._loop.time()
            idle, asked = now - self._heard, asked_at > self._heard
            if asked and idle >= 2 * self._silence:
                log.warning("irc.silent", network=self._session.network, seconds=round(idle))
                self._abort()
            elif not asked and idle >= self._silence:
                asked, asked_at = True, now
                self.send_line("PING :alive", urgent=True)
            patience = self._silence * (2 if asked else 1) - idle
            await asyncio.wait([self._lost], timeout=max(patience, 0.01))
        return self._lost.result()

    async def wait_disconnected(self, within: float) -> None:
        """Wait at most `within` seconds until the server closes the connection, then drop it.

        A connection that is not established yet is abandoned: `open` raises TimeoutError.
        """
        if self._transport:
            await asyncio.wait([self._lost], timeout=within)
            self._abort()
        elif not self._opening.expired():  # move the deadline of the running `open` to now
            self._opening.reschedule(self._loop.time())

    def close(self) -> None:
        """Drop the connection; pending lines become LOST."""
        self._send_queue.close()
        self._session.close()
        self._abort()
        if self._plugins:
            self._plugins.notify("connection_lost")

    def flush(self) -> None:
        """Queue the outgoing messages of the session."""
        for outgoing in self._session.pop_outgoing():
            try:
                line = outgoing.message.render()
            except InvalidMessage as error:
                log.warning("irc.unsendable", network=self._session.network, error=str(error))
                continue
            if outgoing.delay:
                self._send_queue.later(outgoing.delay, line, outgoing.urgent, outgoing.unless)
            else:
                self.send_line(line, outgoing.urgent, outgoing.idle)

    async def lag(self) -> float | None:
        """Measure the seconds until the server answers a PING, however long it takes; None if the
        connection is closed."""
        began, answered = self._loop.time(), self._loop.create_future()
        ping = self._session.ping(lambda: answered.set_result(None))
        self.send_line(ping.render(), urgent=True)
        either: set[asyncio.Future[Any]] = {answered, self._lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return self._loop.time() - began if answered.done() else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls else None
        seen = hashlib.sha256(certificate).hexdigest() if certificate else ""
        trusted = self._session.settings.tls_fingerprints
        if trusted and seen and seen not in trusted:
            self._fault = UntrustedCertificate(f"the certificate {seen} is not trusted")
            transport.close()  # unlike abort, flushes the end of the TLS handshake
            return
        self._heard = self._loop.time()
        self._send_queue.open()
        if self._plugins:
            self._plugins.notify("connection_made")
        registration.start(self._session)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        for line in self._buffer.feed(data):
            # Handling a line may close the connection, as an STS upgrade does; the lines after it
            # in the same read must not be handled.
            if not self._transport or self._transport.is_closing():
                continue
            self._heard = self._loop.time()
            if not (message := parse(line)):
                continue
            for event in handlers.receive(self._session, message):
                self._on_event(event)
            self.flush()
            if message.command not in ("PRIVMSG", "NOTICE"):
                self._changed()
            if self._plugins:
                self._plugins.dispatch(strip_tags(line))
            # After an STS upgrade (https://ircv3.net/specs/extensions/sts) nothing more may be sent
            # on the unencrypted connection; ERROR is the last line of a server.
            if self._session.upgrade or self._session.error is not None:
                self._abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if not self._lost.done():
            self._lost.set_result(self._fault or exc)

    def _write(self, line: str) -> bool:
        assert self._transport, "nothing is sent before the connection is made"
        bare = strip_tags(line)
        # Asked when the line is written: a lease may run out while lines are queued.
        if bare.startswith(("PRIVMSG ", "NOTICE ", "TAGMSG ")) and not self._may_speak():
            return False
        if not self._transport.is_closing():
            self._transport.write(line.encode("utf-8", "replace") + b"\r\n")
        self._session.wrote(line)
        if self._plugins:
            self._plugins.dispatch(bare, iotype="out")
        return True

    def _abort(self) -> None:
        """Close the connection at once, if there is one, without flushing."""
        if self._transport:
            self._transport.abort()


def tls_context(settings: NetworkSettings) -> ssl.SSLContext:
    """Return the TLS context for connections to a network.

    With `tls_fingerprints` the certificate is pinned and its chain and name are not verified;
    without `tls_verify` any certificate is accepted. Raises OSError if `tls_cert` cannot be used.
    """
    context = ssl.create_default_context()
    if settings.tls_fingerprints or not settings.tls_verify:
        # `IrcConnection.connection_made` compares the fingerprint after the handshake.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.tls_cert:
        context.load_cert_chain(settings.tls_cert)
    return context


def explain(error: OSError | UnicodeError, port: int, encrypted: bool) -> str:
    """Return for people why connecting to `port` failed, with advice for TLS; never empty."""
    text = str(error) or "no connection was established in time"
    if not encrypted:
        return text
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate cannot be verified: {error.verify_message}; for a server of your own,"
            " set tls_fingerprints to the certificate's SHA-256 (docs/irc.md)"
        )
    if isinstance(error, ssl.SSLError | ConnectionAbortedError | ConnectionResetError):
        # A server without TLS answers in clear text, which OpenSSL reports as a wrong version, or
        # stays silent, or closes the connection.
        return (
            f"{text}; the server does not speak TLS on port {port}: set `port` to the one for TLS "
            "(often 6697), or tls = false"
        )
    return text


def _is_address(server: str) -> bool:
    try:
        ipaddress.ip_address(server)
    except ValueError:
        return False
    return True
