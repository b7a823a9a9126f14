"""`terrarium server --ray`: a Ray of its own on this machine, or that of RAY_ADDRESS."""

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

APP = "terrarium"
"""The application's name in Ray Serve."""

STOPPING = 15.0
"""Seconds that Ray Serve has to stop: it stops ingress, engines and queue one after the other, and
each may go on with answers for as long as `GRACE` of `agent_server/ray/app.py`."""

LOOK = 0.2
"""Seconds between two looks how far Ray Serve is."""

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

ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The variable by which a Ray of our own has the address of loopback, as on macOS: it is to be
joined by no other machine, and answers some requests without a token."""


def is_own() -> bool:
    """Return whether a Ray of our own is started, and none joined that RAY_ADDRESS names."""
    return os.environ.get("RAY_ADDRESS", "") in {"", "local"}


def prepare(data: Path, *, is_own: bool) -> None:
    """Set the variables of Ray for this process and its children, then import it.

    Without a token of yours one is made in the data folder, for the owner's eyes only. Raises
    ConfigError when the extra `ray` is missing.
    """
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
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def require_room(config: Config) -> None:
    """Raise ConfigError when this machine has too few CPUs for the engines of a Ray of our own."""
    if is_own() and (problem := shortage(config, [{CPU: cores()}], "this machine")):
        raise ConfigError(problem)


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT comes, once Ray is prepared.

    Raises ConfigError when a Ray of our own has no room for the engines.
    """
    import psutil

    session, is_kept = _join(), False
    try:
        _exit_on_signals()  # Ray has put handlers of its own
        _check_room(config)
        _deploy(config)
        asyncio.run(told_to_stop())
    except RuntimeError:
        is_kept = True
        log.warning("server.failed", logs=str(session / "logs"))
        raise
    finally:
        started = psutil.Process().children(recursive=True)
        try:
            _leave()
        finally:
            end(started)
            if is_own() and not is_kept:
                _remove_session(session)


def _join() -> Path:
    """Start or join Ray, and return the folder of its session on this machine."""
    import ray

    # It would tell what is in order, in lines of another form than ours.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    # Without an address Ray would join whatever cluster was started last on this machine.
    context = ray.init(
        "local" if is_own() else os.environ["RAY_ADDRESS"],
        num_cpus=cores() if is_own() else None,
        include_dashboard=False,
        log_to_driver=True,
        configure_logging=False,
    )
    return Path(context.address_info["session_dir"])


def _check_room(config: Config) -> None:
    """Warn when a cluster has no room for the engines, as further nodes may come; raise ConfigError
    when it is our own."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not (problem := shortage(config, nodes, "this cluster")):
        return
    if is_own():
        raise ConfigError(problem)
    log.warning("engine.no_room", problem=problem)


def _deploy(config: Config) -> None:
    """Start the application, and return when it answers. Raises RuntimeError."""
    from ray import serve

    from agent_server.ray.app import build

    address = config.section(ServerSettings)
    # The head node has the address of `[server]`; behind a balancer every node can listen.
    serve.start(
        proxy_location="HeadOnly", http_options={"host": address.host, "port": address.port}
    )
    serve.run_many(
        [serve.RunTarget(build(config), name=APP, route_prefix="/")],
        wait_for_applications_running=False,  # that of all engines, for which there may be no room
    )
    while not _answers():
        time.sleep(LOOK)
    log.info("server.listening", host=address.host, port=address.port)


def _answers() -> bool:
    """Return whether each deployment has a replica that runs.

    Raises RuntimeError when Ray Serve has given up.
    """
    from ray import serve

    application = serve.status().applications[APP]
    if application.status == "DEPLOY_FAILED":
        raise RuntimeError(f"Ray Serve could not start the agent server: {application.message}")
    deployments = application.deployments.values()
    return bool(deployments) and all(each.replica_states.get("RUNNING") for each in deployments)


def _leave() -> None:
    """Stop our application, and Ray Serve unless it has others, of a cluster that we have joined.

    What takes longer than `STOPPING` ends with our own Ray, and goes on by itself in a cluster.
    """
    import ray
    from ray import serve

    applications = serve.status().applications
    if not is_own() and not applications.keys() - {APP}:
        asyncio.run(_shut_down_serve())
    elif APP in applications:
        serve.delete(APP, _blocking=False)
        deadline = time.monotonic() + STOPPING
        while APP in serve.status().applications:
            if time.monotonic() > deadline:
                log.warning("server.stopping", after=STOPPING)
                break
            time.sleep(LOOK)
    ray.shutdown()


async def _shut_down_serve() -> None:
    from ray import serve

    try:
        async with asyncio.timeout(STOPPING):
            await serve.shutdown_async()
    except TimeoutError:
        log.warning("server.stopping", after=STOPPING)


def _remove_session(folder: Path) -> None:
    """Remove the folder of a session of our own, and the link that names it as the latest one."""
    shutil.rmtree(folder, ignore_errors=True)
    latest = folder.with_name("session_latest")
    if latest.is_symlink() and latest.readlink() == folder:
        latest.unlink(missing_ok=True)


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
