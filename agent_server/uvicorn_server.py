"""The process around the application: its socket and its end."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket

import structlog
from fastapi import FastAPI

from agent_server.settings.server import ServerSettings
from terrarium.config import ConfigError
from terrarium.http import serving as http_serving
from terrarium.sockets import listen
from terrarium.supervision import told_to_stop

log = structlog.get_logger()


def listening(address: ServerSettings) -> socket.socket:
    """Return the listening socket of `[server]`. Raises ConfigError when another program has it."""
    try:
        return listen(address.host, address.port)
    except OSError as error:
        where = f"{address.host} port {address.port}"
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
        raise ConfigError(
            f"{where} {reason}; choose another with SERVER_PORT or [server] port"
        ) from error


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT comes or the supervisor is gone."""
    # What was imported stays: the collector need not look through it again with every request.
    gc.freeze()
    host, port = listener.getsockname()[:2]
    log.info("server.listening", host=host, port=port)
    serving = asyncio.create_task(http_serving.serve(app, listener, behind_proxy=False))
    stopped = asyncio.create_task(told_to_stop())
    await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, stopped):
        task.cancel()
    await asyncio.wait({serving, stopped})
    if not serving.cancelled():
        serving.result()
