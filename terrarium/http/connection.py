"""One HTTP/1.1 connection, on which one request follows the other.

Engines, and the agent server in front of them, answer over plain HTTP/1.1, in a stream. A general
client is the dearest part of a request (`make bench-server` has a gateway that is little else), so
the little that is needed of one is written out: httptools reads, this class hands it on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

LONGEST_HEAD = 256 * 1024
"""Bytes in which the head of an answer must end, with what of the body came along."""

MUCH = 1024 * 1024
"""Bytes that may wait for a slow reader; with more the engine is made to wait."""


class ConnectionBroken(Exception):
    """The connection broke, or what came over it was no HTTP."""


class HttpConnection(asyncio.Protocol):
    """`status`, `headers` (names in lower case) and the body are those of the last request.

    `done` is called when the connection can take another request, `lost` when it is closed.
    """

    def __init__(
        self, done: Callable[[HttpConnection], None], lost: Callable[[HttpConnection], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._done, self._lost = done, lost
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked = self._alone = False
        self._problem: Exception | None = None
        self._parser = HttpResponseParser(self)
        self.is_open = True
        self._clear()

    def _clear(self) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self._head_size = 0
        self._headed = self._ended = self._keeps = False
        self._body: list[bytes] = []
        self._size = 0
        self._is_paused = False

    @property
    def no_bytes_received(self) -> bool:
        """True while no byte of the answer has arrived."""
        return not self._head_size

    @property
    def has_body(self) -> bool:
        """True while some of the body waits to be read."""
        return bool(self._body)

    async def begin(self, request: bytes, patience: float) -> None:
        """Send `request`; return when some of the answer's body has come, or all of it.

        Raises ConnectionBroken, and TimeoutError when nothing comes for `patience` seconds, as does
        `read`.
        """
        self._send(request, patience)
        while not (self._body or self._ended):
            await self._wait_for_data()

    async def tunnel(self, request: bytes, patience: float) -> asyncio.Transport:
        """Send a CONNECT request; return what to speak through when it is granted."""
        self._send(request, patience)
        while not self._headed:
            await self._wait_for_data()
        granted = 200 <= self.status < 300
        if not granted:
            raise ConnectionBroken("the proxy refuses the connection")
        self._stop_waiting()
        self._clear()
        self._parser = HttpResponseParser(self)  # the other waits for the body of the grant
        return self._transport

    def carry_on(self, transport: asyncio.Transport) -> None:
        """Use another transport from now on, after TLS has begun on the tunnel."""
        self._transport = transport

    async def read(self) -> bytes:
        """Return the body received since the last call, b"" at its end."""
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
        """Take no more of the answer: it may end within `grace` seconds, else it is broken off."""
        self._stop_waiting()
        if self._ended and self.is_open:
            self._return_to_pool()
        elif grace and self.is_open:
            self._alone = True
            self._timer = self._loop.call_later(grace, self.abort)
        else:
            self.abort()

    def expire_after(self, seconds: float) -> None:
        """Close unless there is another request within so many seconds."""
        self._timer = self._loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """Close at once."""
        self.is_open = False
        self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read on in the answer."""
        if not self._asked and not self._alone:
            self.abort()  # an answer that nobody asked for
            return
        self._head_size += 0 if self._headed else len(data)
        try:
            self._parser.feed_data(data)
            if not self._headed and self._head_size > LONGEST_HEAD:
                raise HttpParserError("a head without an end")
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._ended:
                self._keeps = False  # what follows the answer was not asked for
            else:
                self._fail(ConnectionBroken(str(error)))
        if self._ended and self._alone:
            self._stop_waiting()
            self._return_to_pool()
            return
        if self._size > MUCH and self.is_open and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side; a body without a length ends so."""
        self.is_open = False
        if self._headed and error is None and not self._has_length():
            self._ended = True
        elif not self._ended and self._problem is None:
            self._problem = ConnectionBroken("the connection was closed")
        self._stop_waiting()
        self._wake()
        self._lost(self)

    # What httptools calls.

    def on_message_begin(self) -> None:
        """The beginning of an answer. Raises HttpParserError after the end of the one wanted."""
        if self._ended:
            raise HttpParserError("one answer more")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take note of a header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head of an answer, or of a note that one will come (100 to 199)."""
        self.status = self._parser.get_status_code()
        self._headed = self.status >= 200
        self._keeps = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Keep it for the reader."""
        if not self._alone:
            self._body.append(data)
            self._size += len(data)

    def on_message_complete(self) -> None:
        """The end of the answer."""
        self._ended = self._headed

    # How it works inside.

    def _send(self, request: bytes, patience: float) -> None:
        self._stop_waiting()
        self._clear()
        self._asked, self._patience, self._heard = True, patience, self._loop.time()
        self._timer = self._loop.call_later(patience, self._check_timeout)
        self._transport.write(request)

    async def _wait_for_data(self) -> None:
        """Wait until data arrive."""
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
        """Fail the waiting reader when the server has been silent for too long."""
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
        """Stop the timeout, as no answer is awaited any more."""
        self._asked = self._alone = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _return_to_pool(self) -> None:
        if self._keeps and self._problem is None:
            self._done(self)
        else:
            self.abort()

    def _has_length(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers
