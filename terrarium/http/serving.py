"""Runner of uvicorn, with limits on what a connection may cost before it sends a request.

uvicorn with httptools accepts headers of any size and waits for the rest of a request for ever
(Slowloris attacks). Here a header has at most `HEADER_BYTES`, a request has to arrive and an answer
to be read in time, and if there are too many connections without a whole request, the oldest of
them is closed for a new one.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import AbstractEventLoop, BaseTransport, TimerHandle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from itertools import chain
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

HEADER_BYTES = 64 * 1024
"""Most bytes of the request line and all header fields together; more are answered with 431."""

LINGER = 1.0
"""Seconds that a refused client has to read the reason before its connection is closed."""

SHUTDOWN_GRACE = 1
"""Seconds that answers in progress have to finish when the server stops."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of connections, which are the same on every server except in tests.

    Times are in seconds. `header` is from the connection, or the first byte of a further request,
    to the end of the header; `body` from there to the end of the body, plus a second for each
    `body_rate` bytes received. `idle` is between two requests, `unread` how long an answer may wait
    for its reader. At most `connections` are open at once, and at most `pending` of them have not
    sent a whole request.
    """

    header: float = 10
    body: float = 30
    body_rate: int = 8192
    idle: int = 5
    unread: float = 60
    connections: int = 768  # most systems give a process 1024 descriptors, files among them
    pending: int = 128


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    ready: Callable[[], None] = lambda: None,
    stopping: Callable[[], None] = lambda: None,
    proxies: Sequence[str] = (),
    limits: HttpLimits | None = None,
) -> None:
    """Serve until cancelled, then let answers in progress finish, for `SHUTDOWN_GRACE` seconds.

    `ready` is called when the application has started, `stopping` when it is about to stop, so that
    it can end endless answers. The client's address and scheme in `X-Forwarded-For` and
    `X-Forwarded-Proto` are trusted if `proxies`, addresses or networks, send them. Signals are left
    to the caller.
    """
    config = LimitedConfig(
        app,
        limits or HttpLimits(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
    )
    server = _Server(config, ready)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(running)  # a cancelled uvicorn would leave its sockets open
    finally:
        server.stop()
        stopping()
        await running


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which calls `ready` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Update the date of answers each second until `stop`; uvicorn would look ten times."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as soon as no answer is in progress; uvicorn would look ten times a second."""
        state = self.server_state
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # connections without a request end now
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_GRACE):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(0.01)
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then call `ready`."""
        await super().startup(sockets)
        if self.started:
            self._ready()


class _Stage(Enum):
    """The part of a request that a connection waits for."""

    NOTHING = "a further request"
    HEADER = "the rest of a header"
    BODY = "the rest of a body"


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with our protocol and the state that its connections share."""

    def __init__(self, app: Any, limits: HttpLimits, **options: Any) -> None:
        super().__init__(
            app, http=LimitedProtocol, ws="none", timeout_keep_alive=limits.idle, **options
        )
        self.limits = limits
        # Those that can be closed to make room, each kind oldest first: connections that have not
        # sent a whole request, and those between two requests.
        self.pending: dict[LimitedProtocol, None] = {}
        self.idle: dict[LimitedProtocol, None] = {}


class LimitedProtocol(HttpToolsProtocol):
    """One connection of a client.

    Timers are started only for requests that do not arrive in one piece. `_unparsed` counts the
    bytes since the last one that the parser passed on as body: those of a header, of trailers or of
    chunk extensions. It does not count the piece in which a request begins.
    """

    config: LimitedConfig

    def __init__(
        self,
        config: LimitedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = config.limits
        self._pending, self._idle = config.pending, config.idle
        self._stage = _Stage.HEADER
        self._timed: _Stage | None = None
        self._timer: TimerHandle | None = None
        self._unread_timer: TimerHandle | None = None
        self._began = 0.0
        self._piece = 0
        self._unparsed = 0
        self._received = 0
        self._refused = False

    # Callbacks of asyncio.

    def connection_made(self, transport: BaseTransport) -> None:
        """Accept the connection, closing another one or this one if there are too many."""
        super().connection_made(cast("Any", transport))
        self._pending[self] = None
        too_many = len(self.connections) > self._limits.connections
        if too_many or len(self._pending) > self._limits.pending:
            others = (each for each in chain(self._pending, self._idle) if each is not self)
            oldest = next(others, self)
            if oldest is self:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections.")
                self.transport.close()
                return
            oldest._forget()
            oldest.transport.abort()
        self._start_timer(_Stage.HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and apply the limits to what is still missing of the request."""
        if self._refused:
            return
        # The first bytes of a further request.
        if self._stage is _Stage.NOTHING and not self._is_answering():
            self._idle.pop(self, None)
            self._stage = _Stage.HEADER
        self._piece = len(data)
        self._unparsed += self._piece
        self._received += self._piece
        super().data_received(data)
        if self.transport.is_closing() or self._refused:
            return
        if self._stage is _Stage.NOTHING:
            self._stop_timer()
            self._pending.pop(self, None)
            if not self._is_answering():  # the answer was complete before the request was
                self._become_idle()
        elif self._unparsed > HEADER_BYTES:
            self._refuse_long_header()
        elif self._timed is not self._stage:  # the request has not arrived in one piece
            self._pending[self] = None
            self._start_timer(self._stage)

    def pause_writing(self) -> None:
        """Start the time in which the client has to read what was sent."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self._limits.unread, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop that time: the client has read."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = _Stage.HEADER
        self._unparsed = 0
        self._received = self._piece

    def on_headers_complete(self) -> None:
        """Start the application, unless the header is too long."""
        # The counters are an upper bound, as the piece may have more than the header in it: the
        # exact size is summed up only if it may matter.
        if self._unparsed + self._piece > HEADER_BYTES:
            # 4: the colon, the space and the line break of a field.
            fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + fields > HEADER_BYTES:
                self._refused = True
                raise ValueError("the header is too long")  # stops it: see send_400_response
        self._stage = _Stage.BODY
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request; the next one has its own timers."""
        self._stage, self._timed = _Stage.NOTHING, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Become idle, unless the request is incomplete or another one is being answered."""
        super().on_response_complete()
        if self._stage is _Stage.NOTHING and not self._is_answering():
            self._become_idle()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refuses: invalid HTTP, or a header that is too long."""
        if self._refused:
            self._refuse_long_header()
        else:
            super().send_400_response(msg)

    def _is_answering(self) -> bool:
        """Return whether a request is being answered, or waits for its answer (pipelining)."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first
        return cycle is not None and (not cycle.response_complete or bool(self.pipeline))

    def _become_idle(self) -> None:
        """Become idle: close unless a further request begins within the keep-alive time."""
        if self.transport.is_closing():
            return
        # uvicorn starts this timer only when an answer ends, and stops it when anything arrives.
        self._unset_keepalive_if_required()
        self._idle[self] = None
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _refuse_long_header(self) -> None:
        text = f"The header of this request is longer than {HEADER_BYTES} bytes."
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)

    def _start_timer(self, stage: _Stage) -> None:
        """Start the timer of `stage`: the rest of header or body has to arrive in time."""
        self._stop_timer()
        self._timed, self._began = stage, self.loop.time()
        seconds = self._limits.header if stage is _Stage.HEADER else self._limits.body
        self._timer = self.loop.call_later(seconds, self._on_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_late(self) -> None:
        left = 0.0
        if self._timed is _Stage.BODY:
            more = self._limits.body + self._received / self._limits.body_rate
            left = self._began + more - self.loop.time()
        if self.flow.read_paused or (self._timed is _Stage.HEADER and self._is_answering()):
            left = self._limits.header  # the delay is ours: paused, or answering another request
        if left > 0:
            self._timer = self.loop.call_later(left, self._on_late)
        elif self._received == 0:
            self.transport.close()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The request did not come in time.")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Send an error response at once, and close once the client has had time to read it."""
        self._refused = True
        self._stop_timer()
        self._unset_keepalive_if_required()
        if self._is_answering():
            if self.cycle.response_started or self._stage is _Stage.HEADER:
                self.transport.close()  # an error would end up in the middle of another answer
                return
            self.cycle.disconnected = True  # so that the application writes nothing after the error
            self.cycle.message_event.set()
        self.flow.pause_reading()  # what else the client sends is not buffered here
        body = text.encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        # Only our half is closed at first: a close while unread bytes arrive would send a reset, by
        # which the client may lose the answer before it has read it (RFC 9112, 9.6).
        self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER, self.transport.abort)

    def _forget(self) -> None:
        self._stop_timer()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._pending.pop(self, None)
        self._idle.pop(self, None)
