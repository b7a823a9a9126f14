"""The agent server's process: its listening socket and its shutdown."""

from __future__ import annotations

import errno
import gc
import socket

import structlog
from fastapi import FastAPI

from agent_server.settings.server import ServerSettings
from terrarium.config import ConfigError
from terrarium.http import serving as http_serving
from terrarium.sockets import listen
from terrarium.supervision import serve_until_stopped

log = structlog.get_logger()


def listening(address: ServerSettings) -> socket.socket:
    """Open the listening socket of `[server]`. Raises ConfigError if the address cannot be used."""
    try:
        return listen(address.host, address.port)
    except OSError as error:
        where = f"{address.host} port {address.port}"
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
        raise ConfigError(
            f"{where} {reason}; choose another with SERVER_PORT or [server] port"
        ) from error


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve until SIGTERM, SIGINT or the end of the supervisor."""
    # Imported objects live as long as the process: exclude them from garbage collection.
    gc.freeze()
    host, port = listener.getsockname()[:2]
    log.info("server.listening", host=host, port=port)
    # Once cancelled, it lets running answers end within its grace period.
    await serve_until_stopped(http_serving.serve(app, listener))
