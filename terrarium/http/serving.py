"""Runner of uvicorn in a process that handles signals itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from terrarium.http.limited_protocol import HttpLimits, LimitedConfig

SHUTDOWN_GRACE = 1
"""Seconds that answers in progress have to finish when the server stops."""


def _nothing() -> None:
    pass


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    ready: Callable[[], None] = _nothing,
    stopping: Callable[[], None] = _nothing,
    behind_proxy: bool = True,
    limits: HttpLimits | None = None,
) -> None:
    """Serve until cancelled, then let answers in progress finish, for `SHUTDOWN_GRACE` seconds.

    `ready` is called when the application has started, `stopping` when it is about to stop, so that
    it can end endless answers. With `behind_proxy` the client address that a proxy on this machine
    forwards is trusted. Signals are left to the caller.
    """
    config = LimitedConfig(
        app,
        limits or HttpLimits(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
    )
    server = _Server(config, ready)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(running)  # a cancelled uvicorn would leave its sockets open
    finally:
        server.should_exit = True
        stopping()
        await running


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which calls `ready` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then call `ready`."""
        await super().startup(sockets)
        if self.started:
            self._ready()
