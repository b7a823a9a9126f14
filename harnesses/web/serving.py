"""The HTTP server of the tendril, started and stopped by the tendril."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

_PATIENCE = 1  # seconds that open answers get to end when the server stops


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    ready: Callable[[], None],
    stopping: Callable[[], None],
) -> None:
    """Serve until cancelled, then let open answers end: `stopping` tells the endless ones to."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE,
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
    """uvicorn that leaves signals to the tendril, and says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take no signal."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell."""
        await super().startup(sockets)
        if self.started:
            self._ready()
