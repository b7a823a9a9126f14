"""`terrarium server --ray`: the agent server on its own local Ray, or on that of RAY_ADDRESS."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from agent_server.model_catalogue.machine import cores
from agent_server.ray.capacity import CPU, shortage
from agent_server.settings.server import ServerSettings
from terrarium.config import Config, ConfigError
from terrarium.supervision import told_to_stop

log = structlog.get_logger()

HOW_TO_GET = "Ray is not installed: pip install 'terrarium[ray]' (about 300 MB)"

APP_NAME = "terrarium"
"""Name of the application in Ray Serve."""

SHUTDOWN_TIMEOUT = 15.0
"""Seconds to wait for Ray Serve to stop. It stops ingress, engines and queue one after another, and
each may finish its answers first (`SHUTDOWN_GRACE` and `ENGINE_GRACE` of
`agent_server/ray/app.py`)."""

STATUS_POLL_INTERVAL = 0.2
"""Seconds between two polls of Ray Serve's status."""

EXIT_TIMEOUT = 5.0
"""Seconds that Ray's processes have to exit by themselves after a shutdown."""

ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0",  # or the proxy would not hash sessions
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "agent_server.ray.proxy.middlewares",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",  # after 5 s it would kill one that starts slowly
    "RAY_SERVE_LOG_TO_STDERR": "0",  # its logs are in files of the session; ours are shown
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # GPUs stay visible to engines that reserve none
}
"""Environment variables of Ray that every node needs; those that are set already are kept."""

ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Variable that makes a Ray of our own use the loopback address, as it does on macOS: no other
machine is to join it, and it answers some requests without a token."""


def is_own() -> bool:
    """Return whether this command starts a Ray of its own rather than joining RAY_ADDRESS."""
    return os.environ.get("RAY_ADDRESS", "") in {"", "local"}


def prepare(data: Path, *, is_own: bool) -> None:
    """Set Ray's environment variables for this process and its children, then import Ray.

    Unless a token is configured, one is generated in the data folder, readable by its owner only.
    Raises ConfigError if the extra `ray` is missing.
    """
    # Before the import, as Ray reads many of its variables then.
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if is_own:
        os.environ.update(ON_LOOPBACK)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(_token_file(data.resolve()))
    try:
        importlib.import_module("ray.serve")
    except ImportError as error:
        raise ConfigError(HOW_TO_GET) from error


def _token_file(data: Path) -> Path:
    path = data / "ray-token"
    data.mkdir(parents=True, exist_ok=True)
    # O_EXCL: of two commands at once only one writes. The mode is set before there is a secret.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def require_room(config: Config) -> None:
    """Raise ConfigError if a Ray of our own would have too few CPUs here for the engines."""
    if is_own() and (problem := shortage(config, [{CPU: cores()}], "this machine")):
        raise ConfigError(problem)


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; `prepare` must have been called before.

    Raises ConfigError if a Ray of our own has no room for the engines.
    """
    import psutil

    session, is_kept = _join(), False
    try:
        _exit_on_signals()  # after `_join`, as Ray installs handlers of its own
        _check_room(config)
        _deploy(config)
        asyncio.run(told_to_stop())
    except RuntimeError:
        is_kept = True
        log.warning("server.failed", logs=str(session / "logs"))
        raise
    finally:
        # Listed before Ray stops: processes that it orphans are no longer found by their parent.
        started = psutil.Process().children(recursive=True)
        try:
            _leave()
        finally:
            kill_remaining(started)
            if is_own() and not is_kept:
                _remove_session(session)


def _join() -> Path:
    """Start or join Ray, and return the folder of its session on this machine."""
    import ray

    # Ray Serve also logs routine events, in another format than ours.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    # Without an address Ray would join the cluster that was started last on this machine.
    context = ray.init(
        "local" if is_own() else os.environ["RAY_ADDRESS"],
        num_cpus=cores() if is_own() else None,
        include_dashboard=False,
        log_to_driver=True,
        configure_logging=False,
    )
    return Path(context.address_info["session_dir"])


def _check_room(config: Config) -> None:
    """Raise ConfigError if a Ray of our own has no room for the engines.

    In a cluster that was joined only a warning is logged, as it may get further nodes.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not (problem := shortage(config, nodes, "this cluster")):
        return
    if is_own():
        raise ConfigError(problem)
    log.warning("engine.no_room", problem=problem)


def _deploy(config: Config) -> None:
    """Start the application and return once it answers. Raises RuntimeError."""
    from ray import serve

    from agent_server.ray.app import build

    address = config.section(ServerSettings)
    # The head node has the address of `[server]`; behind a balancer every node can listen.
    serve.start(
        proxy_location="HeadOnly", http_options={"host": address.host, "port": address.port}
    )
    serve.run_many(
        [serve.RunTarget(build(config), name=APP_NAME, route_prefix="/")],
        wait_for_applications_running=False,  # it would wait for all engines, and some may not fit
    )
    while not _answers():
        time.sleep(STATUS_POLL_INTERVAL)
    log.info("server.listening", host=address.host, port=address.port)


def _answers() -> bool:
    """Return whether each deployment has a running replica.

    Raises RuntimeError if Ray Serve has given up.
    """
    from ray import serve

    application = serve.status().applications[APP_NAME]
    if application.status == "DEPLOY_FAILED":
        raise RuntimeError(f"Ray Serve could not start the agent server: {application.message}")
    deployments = application.deployments.values()
    return bool(deployments) and all(each.replica_states.get("RUNNING") for each in deployments)


def _leave() -> None:
    """Stop our application, then leave Ray.

    Of a cluster that was joined, Ray Serve is stopped too unless it runs other applications. After
    `SHUTDOWN_TIMEOUT` seconds a stop is no longer awaited: it continues in a cluster, and is cut
    short by the end of a Ray of our own.
    """
    import ray
    from ray import serve

    applications = serve.status().applications
    if not is_own() and not applications.keys() - {APP_NAME}:
        asyncio.run(_shut_down_serve())
    elif APP_NAME in applications:
        serve.delete(APP_NAME, _blocking=False)
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT
        while APP_NAME in serve.status().applications:
            if time.monotonic() > deadline:
                log.warning("server.stopping", after=SHUTDOWN_TIMEOUT)
                break
            time.sleep(STATUS_POLL_INTERVAL)
    ray.shutdown()


async def _shut_down_serve() -> None:
    from ray import serve

    try:
        async with asyncio.timeout(SHUTDOWN_TIMEOUT):
            await serve.shutdown_async()
    except TimeoutError:
        log.warning("server.stopping", after=SHUTDOWN_TIMEOUT)


def _remove_session(folder: Path) -> None:
    """Remove the folder of our own Ray's session, and `session_latest` if it points there."""
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.with_name("session_latest")
    if latest.is_symlink() and latest.readlink() == folder:
        latest.unlink(missing_ok=True)


def _exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGINT, until `told_to_stop` installs its own handlers."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def kill_remaining(processes: Sequence[Any]) -> None:
    """Kill those of `processes` that do not exit: Ray leaves some running for a minute."""
    import psutil

    _, running = psutil.wait_procs(processes, timeout=EXIT_TIMEOUT)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(running, timeout=EXIT_TIMEOUT)
