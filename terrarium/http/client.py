"""Small, fast HTTP/1.1 client: connections, a pool of them for one base URL, and event streams.

Engines, and the agent server in front of them, answer over plain HTTP/1.1, in a stream of small
pieces. A general-purpose client would be the most expensive part of a request (`make bench-server`
has a gateway that is little else), so this one has only what is needed here, on top of the parser
httptools.

`EventData` parses server-sent events. In them only CR, LF and CRLF end a line
(https://html.spec.whatwg.org/multipage/server-sent-events.html): a general line splitter would cut
JSON at U+2028 or U+0085. Model APIs write each event's data on one line; llama.cpp sends errors in
a field called `error`.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import cast
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from terrarium.config import ConfigError
from terrarium.loopback import is_loopback

MAX_HEAD_BYTES = 256 * 1024
"""Most bytes of an answer's head, including those of the body that arrive together with it."""

MAX_BUFFERED = 1024 * 1024
"""Bytes that are buffered for a slow reader; beyond, reading pauses, so that the engine waits."""


class ConnectionBroken(Exception):
    """The connection broke, or its peer did not speak HTTP."""


class HttpConnection(asyncio.Protocol):
    """One connection, which carries one request at a time.

    `status`, `headers` (names in lower case) and the body are those of the last request. `done` is
    called when the connection can take another request, `lost` when it is closed.
    """

    def __init__(
        self, done: Callable[[HttpConnection], None], lost: Callable[[HttpConnection], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._done, self._lost = done, lost
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked = self._draining = False
        self._problem: Exception | None = None
        self._parser = HttpResponseParser(self)
        self.is_open = True
        self._clear()

    def _clear(self) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self._head_size = 0
        self._headed = self._ended = self._keep_alive = False
        self._body: list[bytes] = []
        self._size = 0
        self._is_paused = False

    @property
    def no_bytes_received(self) -> bool:
        """True while no byte of the answer has arrived."""
        return not self._head_size

    @property
    def has_body(self) -> bool:
        """True while received bytes of the body wait to be read."""
        return bool(self._body)

    async def send(self, request: bytes, patience: float) -> None:
        """Send `request`; return when the first bytes of the body, or the answer's end, are here.
        Raises, as `read` does, ConnectionBroken, and TimeoutError after `patience` seconds of
        silence."""
        self._send(request, patience)
        while not (self._body or self._ended):
            await self._wait_for_data()

    async def tunnel(
        self, request: bytes, patience: float, tls: ssl.SSLContext, host: str | None
    ) -> None:
        """Send a CONNECT request; once the proxy grants it, speak TLS with `host` through it.
        Raises ConnectionBroken if the proxy refuses, and otherwise as `send` does."""
        self._send(request, patience)
        while not self._headed:
            await self._wait_for_data()
        if not 200 <= self.status < 300:
            raise ConnectionBroken("the proxy refuses the connection")
        self._stop_waiting()
        self._clear()
        self._parser = HttpResponseParser(self)  # the old one expects a body after the proxy's 200
        upgraded = await self._loop.start_tls(self._transport, self, tls, server_hostname=host)
        assert upgraded is not None
        self._transport = upgraded

    async def read(self) -> bytes:
        """Return the body received since the last call, b"" at its end. Raises as `send` does."""
        while not self._body:
            if self._ended:
                return b""
            await self._wait_for_data()
        piece = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._size = [], 0
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    def release(self, grace: float = 0) -> None:
        """Discard the rest of the answer; if it ends within `grace` seconds the connection is
        reused, else aborted."""
        self._stop_waiting()
        if self._ended and self.is_open:
            self._return_to_pool()
        elif grace and self.is_open:
            self._draining = True
            self._timer = self._loop.call_later(grace, self.abort)
        else:
            self.abort()

    def expire_after(self, seconds: float) -> None:
        """Close the connection unless there is another request within `seconds`."""
        self._timer = self._loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_open = False
        self._transport.abort()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and pause reading while too many of them wait for the reader."""
        if not self._asked and not self._draining:
            self.abort()  # unsolicited bytes would be taken for the answer to the next request
            return
        self._head_size += 0 if self._headed else len(data)
        try:
            self._parser.feed_data(data)
            if not self._headed and self._head_size > MAX_HEAD_BYTES:
                raise HttpParserError("a head without an end")
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._ended:
                self._keep_alive = (
                    False  # bytes after the answer: the connection must not be reused
                )
            else:
                self._fail(ConnectionBroken(str(error)))
        if self._ended and self._draining:
            self._stop_waiting()
            self._return_to_pool()
            return
        if self._size > MAX_BUFFERED and self.is_open and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the close of the connection by either side."""
        self.is_open = False
        # A body without a declared length ends with the connection (RFC 9112, 6.3).
        has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._headed and error is None and not has_length:
            self._ended = True
        elif not self._ended and self._problem is None:
            self._problem = ConnectionBroken("the connection was closed")
        self._stop_waiting()
        self._wake()
        self._lost(self)

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        """Raise HttpParserError for another answer after the expected one has ended."""
        if self._ended:
            raise HttpParserError("one answer more")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; of repeated ones the last counts."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Handle the end of a head: that of the answer, or of an interim response (1xx)."""
        self.status = self._parser.get_status_code()
        self._headed = self.status >= 200
        self._keep_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Buffer a piece of the body for the reader, unless it has left."""
        if not self._draining:
            self._body.append(data)
            self._size += len(data)

    def on_message_complete(self) -> None:
        """Handle the end of the answer; an interim response (1xx) ends nothing."""
        self._ended = self._headed

    # Internals.

    def _send(self, request: bytes, patience: float) -> None:
        self._stop_waiting()
        self._clear()
        self._asked, self._patience, self._heard = True, patience, self._loop.time()
        self._timer = self._loop.call_later(patience, self._check_timeout)
        self._transport.write(request)

    async def _wait_for_data(self) -> None:
        if self._problem is not None:
            raise self._problem
        self._heard = self._loop.time()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _check_timeout(self) -> None:
        """Fail the waiting reader if the server has been silent for too long."""
        # One timer serves the whole request and is extended here, instead of restarted by each
        # wait. While nobody reads, silence does not count: reading may be paused then.
        silent = self._loop.time() - self._heard if self._waiter else 0
        if silent < self._patience:
            self._timer = self._loop.call_later(self._patience - silent, self._check_timeout)
        else:
            self._fail(TimeoutError())
            self._wake()

    def _fail(self, problem: Exception) -> None:
        self._problem = problem
        self.abort()

    def _stop_waiting(self) -> None:
        """Stop the timeout: no answer is expected any more."""
        self._asked = self._draining = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _return_to_pool(self) -> None:
        if self._keep_alive and self._problem is None:
            self._done(self)
        else:
            self.abort()


CONNECT_TIMEOUT = 5.0
"""Timeout for opening a connection, in seconds."""

IDLE_TIMEOUT = 15.0
"""Seconds that an idle connection is kept open."""

PORTS = {"http": 80, "https": 443}

_NO_HEADERS: Mapping[str, str] = {}


class ConnectFailed(Exception):
    """No connection could be opened."""


class ConnectionPool:
    """Sends requests to `url` over a pool of connections; all requests carry `headers`.

    `patience` is the timeout for a silent server, in seconds. The proxy that the environment names
    is used. Raises ConfigError for headers that HTTP cannot carry.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, patience: float, keep_alive: bool = True
    ) -> None:
        self._to = to = urlsplit(url)
        self._proxy = _proxy(to)
        self._patience = patience
        self._keep_alive = keep_alive
        self._tls = ssl.create_default_context() if to.scheme == "https" else None
        own = {"host": _host(to), **_basic("authorization", to)}
        self._base = quote(to.path, safe="/%:@!$&'()*+,;=-._~")
        if self._proxy and not self._tls:
            self._base = f"http://{_host(to)}{self._base}"
            own |= _basic("proxy-authorization", self._proxy)
        self._headers = _lines({**own, **headers})
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._closed: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        origin = f"{self._to.scheme}://{_host(self._to)}"
        return f"<ConnectionPool {origin}, {len(self._open)} open, {self.idle} idle>"

    @property
    def idle(self) -> int:
        """The number of idle connections."""
        return len(self._idle)

    async def request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> HttpConnection:
        """Send a request with further `headers`; return its connection once the answer has begun.

        The caller must `release` or `abort` the connection. Raises ConnectFailed, ConnectionBroken,
        TimeoutError, and ConfigError as the constructor does.
        """
        body = content or b""
        size = b"content-length: %d\r\n" % len(body) if content is not None else b""
        line = f"{method} {self._base}{path} HTTP/1.1\r\n".encode()
        own = _lines(headers) if headers else b""
        request = b"".join((line, self._headers, own, size, b"\r\n", body))
        if self._idle:
            connection = self._idle.pop()
            try:
                return await self._send_on(connection, request)
            except ConnectionBroken:
                # Without a byte of an answer, the server has probably closed the idle connection in
                # the meantime, as llama.cpp does after each stream although it advertises
                # keep-alive: send the request once more, on a new connection.
                if not connection.no_bytes_received:
                    raise
        return await self._send_on(await self._open_connection(), request)

    async def close(self) -> None:
        """Abort all connections, and return when they are closed."""
        if self._open:
            self._closed = asyncio.get_running_loop().create_future()
            for connection in self._open:
                connection.abort()
            await self._closed
            self._closed = None

    async def _send_on(self, connection: HttpConnection, request: bytes) -> HttpConnection:
        try:
            await connection.send(request, self._patience)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _open_connection(self) -> HttpConnection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if self._proxy:
                    return await self._connect_proxy(self._proxy)
                return await self._to_host(self._to, self._tls)
        # TimeoutError is an OSError; an invalid address raises ValueError.
        except (OSError, ValueError, ConnectionBroken) as error:
            raise ConnectFailed(type(error).__name__) from error

    async def _to_host(self, where: SplitResult, tls: ssl.SSLContext | None) -> HttpConnection:
        port = where.port or PORTS.get(where.scheme)
        if port is None:
            raise ValueError(f"{where.scheme}: is no HTTP")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._on_idle, self._on_lost),
            where.hostname or "",
            port,
            ssl=tls,
        )
        self._open.add(connection)
        return connection

    async def _connect_proxy(self, proxy: SplitResult) -> HttpConnection:
        """Open a connection through a proxy: for TLS by CONNECT, as a tunnel it cannot read."""
        connection = await self._to_host(proxy, None)
        if self._tls is None:
            return connection
        try:
            target = f"{self._to.hostname}:{self._to.port or PORTS['https']}"
            headers = _lines({"host": target, **_basic("proxy-authorization", proxy)})
            request = f"CONNECT {target} HTTP/1.1\r\n".encode() + headers + b"\r\n"
            await connection.tunnel(request, CONNECT_TIMEOUT, self._tls, self._to.hostname)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _on_idle(self, connection: HttpConnection) -> None:
        if self._keep_alive and self._closed is None:
            connection.expire_after(IDLE_TIMEOUT)
            self._idle.append(connection)
        else:
            connection.abort()

    def _on_lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._closed and not self._open and not self._closed.done():
            self._closed.set_result(None)


def _proxy(to: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for `to`, None for none and for loopback. Raises
    ConfigError if the proxy is not an http:// URL."""
    host, proxies = to.hostname or "", getproxies()
    if is_loopback(host) or proxy_bypass(host):
        return None
    named = proxies.get(to.scheme) or proxies.get("all")
    if not named:
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigError(f"the proxy for {host} is no http:// URL; see {to.scheme}_proxy")
    return proxy


def _host(url: SplitResult) -> str:
    """Return the value of the Host header: host and port, without user and password."""
    host = url.netloc.rpartition("@")[2]
    return host if host.isascii() else host.encode("idna").decode()


def _basic(name: str, url: SplitResult) -> dict[str, str]:
    """Return the header `name` with the user and password of a URL, {} if it has none."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {name: f"Basic {b64encode(pair.encode()).decode()}"}


def _lines(headers: Mapping[str, str]) -> bytes:
    # A line break in a value would inject headers or another request.
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise ConfigError(f"what is sent as {name} has characters that HTTP cannot carry")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()


_DATA_FIELDS = (b"data:", b"error:")
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Most bytes of one line; no answer of a model has longer ones."""


class EventTooLong(Exception):
    """A line has more than `MAX_LINE_BYTES` bytes."""


class EventData:
    """Incremental parser of a stream of server-sent events, whose pieces may be cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that `piece` completes. Raises EventTooLong."""
        # LF, CR and CRLF end a line. CRLF makes an empty line more here, but those are skipped.
        *lines, self._rest = (self._rest + piece.replace(b"\r", b"\n")).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise EventTooLong(f"one event has more than {MAX_LINE_BYTES} bytes")
        return [line.partition(b":")[2].strip() for line in lines if line.startswith(_DATA_FIELDS)]
