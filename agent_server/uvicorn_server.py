"""The process around the application: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from collections.abc import Iterator

import structlog
import uvicorn
from fastapi import FastAPI

from agent_server.settings.server import ServerSettings
from terrarium.config import ConfigError
from terrarium.sockets import listen
from terrarium.supervision import parent_gone

log = structlog.get_logger()

GRACE = 1
"""Seconds that answers under way have when the server stops."""


def listening(address: ServerSettings) -> socket.socket:
    """The socket of `[server]`. Raises ConfigError when another program has it."""
    try:
        return listen(address.host, address.port)
    except OSError as error:
        where = f"{address.host} port {address.port}"
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
        raise ConfigError(
            f"{where} {reason}; choose another with SERVER_PORT or [server] port"
        ) from error


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve until a signal comes or the supervisor is gone."""
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
    )
    # What was imported stays: the collector need not look through it again with every request.
    gc.freeze()
    host, port = listener.getsockname()[:2]
    log.info("server.listening", host=host, port=port)
    async with asyncio.TaskGroup() as tasks:
        orphaned = tasks.create_task(_stop_when_orphaned(server))
        await server.serve(sockets=[listener])
        orphaned.cancel()


async def _stop_when_orphaned(server: uvicorn.Server) -> None:
    await parent_gone()
    server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn that takes SIGTERM and SIGINT as a wish to stop, and then ends with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
