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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from agent_server.model_catalogue.machine import cores
from agent_server.settings.models import settings_of_models
from agent_server.settings.ray import RaySettings
from agent_server.settings.server import ServerSettings
from terrarium.config import Config, ConfigError
from terrarium.supervision import told_to_stop

log = structlog.get_logger()

HOW_TO_GET = "Ray is not installed: pip install 'terrarium-irc[ray]' (about 300 MB)"

APP_NAME = "terrarium"
"""Name of the application in Ray Serve."""

SHUTDOWN_TIMEOUT = 15.0
"""Seconds to wait for Ray Serve to stop. It stops the server, then the engines, and each may finish
its answers first."""

STATUS_POLL_INTERVAL = 0.2
"""Seconds between two polls of Ray Serve's status."""

EXIT_TIMEOUT = 5.0
"""Seconds that Ray's processes have to exit by themselves after a shutdown."""

ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
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
        path = data.resolve() / "ray-token"
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL: of two commands at once only one writes. The mode is set before there is a secret.
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
    try:
        importlib.import_module("ray.serve")
    except ImportError as error:
        raise ConfigError(HOW_TO_GET) from error


def shortage(config: Config, nodes: Sequence[Mapping[str, float]], where: str) -> str | None:
    """Return a sentence that says what the nodes lack for the fewest engines and what to do, None
    if all find room.

    `nodes` are amounts by Ray's resource names; an engine needs a node that has all of its own.
    `where` names the nodes in the sentence. Raises ConfigError.
    """
    settings = config.section(RaySettings)
    engines: list[dict[str, float]] = [
        {"CPU": model.threads, "GPU": settings.engine_gpus}
        for model in settings_of_models(config)[1].values()
        for _ in range(settings.min_engines)
        if not model.urls
    ]
    free = [dict(node) for node in nodes]
    # The largest first: small ones could take the only room for a large one.
    for engine in sorted(engines, key=lambda engine: engine["CPU"], reverse=True):
        for node in free:
            if all(node.get(name, 0) >= amount for name, amount in engine.items()):
                for name, amount in engine.items():
                    node[name] = node.get(name, 0) - amount
                break
        else:
            names = ("CPU", "GPU") if settings.engine_gpus else ("CPU",)
            needed, found = (
                " and ".join(f"{sum(each.get(name, 0) for each in of):g} {name}" for name in names)
                for of in (engines, nodes)
            )
            return (
                f"{len(engines)} engines, each on one node, need {needed}; {where} has {found}:"
                " lower [model] threads, [ray] min_engines or [ray] engine_gpus"
            )
    return None


def require_room(config: Config) -> None:
    """Raise ConfigError if a Ray of our own would have too few CPUs here for the engines."""
    if is_own() and (problem := shortage(config, [{"CPU": cores()}], "this machine")):
        raise ConfigError(problem)


def run(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; `prepare` must have been called before. Raises ConfigError if
    a Ray of our own has no room for the engines."""
    import psutil
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
    session, is_kept = Path(context.address_info["session_dir"]), False
    try:
        # Until `told_to_stop` installs handlers; only now, as Ray has installed some of its own.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if problem := shortage(config, nodes, "this cluster"):
            if is_own():
                raise ConfigError(problem)
            log.warning("engine.no_room", problem=problem)  # it may get further nodes
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
                shutil.rmtree(session, ignore_errors=True)
                latest = session.with_name("session_latest")
                if latest.is_symlink() and latest.readlink() == session:
                    latest.unlink(missing_ok=True)


def _deploy(config: Config) -> None:
    """Start the application and return once a replica of each deployment runs. Raises RuntimeError
    if Ray Serve gives up."""
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
    while True:
        application = serve.status().applications[APP_NAME]
        if application.status == "DEPLOY_FAILED":
            raise RuntimeError(f"Ray Serve could not start the agent server: {application.message}")
        found = application.deployments.values()
        if found and all(each.replica_states.get("RUNNING") for each in found):
            log.info("server.listening", host=address.host, port=address.port)
            return
        time.sleep(STATUS_POLL_INTERVAL)


def _leave() -> None:
    """Stop our application, then leave Ray.

    Of a cluster that was joined, Ray Serve is stopped too unless it runs other applications. After
    `SHUTDOWN_TIMEOUT` seconds a stop is no longer awaited: it continues in a cluster, and is cut
    short by the end of a Ray of our own.
    """
    import ray
    from ray import serve

    async def shut_down() -> None:
        async with asyncio.timeout(SHUTDOWN_TIMEOUT):
            await serve.shutdown_async()

    applications = serve.status().applications
    try:
        if not is_own() and not applications.keys() - {APP_NAME}:
            asyncio.run(shut_down())
        elif APP_NAME in applications:
            serve.delete(APP_NAME, _blocking=False)
            deadline = time.monotonic() + SHUTDOWN_TIMEOUT
            while APP_NAME in serve.status().applications:
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(STATUS_POLL_INTERVAL)
    except TimeoutError:
        log.warning("server.stopping", after=SHUTDOWN_TIMEOUT)
    ray.shutdown()


def kill_remaining(processes: Sequence[Any]) -> None:
    """Kill those of `processes` that do not exit: Ray leaves some running for a minute."""
    import psutil

    _, running = psutil.wait_procs(processes, timeout=EXIT_TIMEOUT)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(running, timeout=EXIT_TIMEOUT)
