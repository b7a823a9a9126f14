"""`terrarium server --ray`: a Ray of its own on this machine, or that of RAY_ADDRESS."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from agent_server.settings.server import ServerSettings
from terrarium.config import Config, ConfigError
from terrarium.supervision import told_to_stop

log = structlog.get_logger()

HOW_TO_GET = "Ray is not installed: pip install 'terrarium[ray]' (about 300 MB)"

APP = "terrarium"
"""The application's name in Ray Serve."""

STOPPING = 15.0
"""Seconds that Ray Serve has to stop: it stops ingress, engines and queue one after the other, and
each may go on with answers for as long as `GRACE` of `agent_server/ray/app.py`."""

FAREWELL = 5.0
"""Seconds that processes of Ray have to end by themselves after a shutdown."""

ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0",  # or the proxy would not hash sessions
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "agent_server.ray.proxy.middlewares",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",  # after 5 s it would kill one that starts slowly
    "RAY_SERVE_LOG_TO_STDERR": "0",  # its logs are in files of the session; ours are shown
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # GPUs stay visible to engines that reserve none
}
"""The variables of Ray that every node needs, unless they are set already."""


def prepare(data: Path) -> None:
    """Set the variables of Ray for this process and its children, then import it.

    Without a token of yours one is made in the data folder, for the owner's eyes only. Raises
    ConfigError when the extra `ray` is missing.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file(data.resolve()))
    try:
        importlib.import_module("ray.serve")
    except ImportError as error:
        raise ConfigError(HOW_TO_GET) from error


def _token_file(data: Path) -> Path:
    path = data / "ray-token"
    data.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT comes, once Ray is prepared."""
    import psutil
    import ray
    from ray import serve

    from agent_server.ray.app import build

    address = config.section(ServerSettings)
    # Without an address Ray would join whatever cluster was started last on this machine.
    cluster = os.environ.get("RAY_ADDRESS") or "local"
    ray.init(cluster, include_dashboard=False, log_to_driver=True, configure_logging=False)
    try:
        _exit_on_signals()  # Ray has put handlers of its own
        # The head node has the address of `[server]`; behind a balancer every node can listen.
        serve.start(
            proxy_location="HeadOnly", http_options={"host": address.host, "port": address.port}
        )
        serve.run(build(config), name=APP, route_prefix="/")
        log.info("server.listening", host=address.host, port=address.port)
        asyncio.run(told_to_stop())
    finally:
        started = psutil.Process().children(recursive=True)
        try:
            asyncio.run(_stop_serving())
            ray.shutdown()
        finally:
            end(started)


async def _stop_serving() -> None:
    """Stop our application, and Ray Serve unless it has others, of a cluster that we have joined.

    What takes longer ends with our own Ray, and goes on by itself in a cluster.
    """
    from ray import serve

    if serve.status().applications.keys() - {APP}:
        serve.delete(APP)
        return
    try:
        async with asyncio.timeout(STOPPING):
            await serve.shutdown_async()
    except TimeoutError:
        log.warning("server.stopping", after=STOPPING)


def _exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGINT while the replicas are started."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def end(processes: Sequence[Any]) -> None:
    """End what Ray leaves running for a minute after its shutdown."""
    import psutil

    _, running = psutil.wait_procs(processes, timeout=FAREWELL)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(running, timeout=FAREWELL)
