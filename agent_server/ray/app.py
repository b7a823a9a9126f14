"""The application for Ray Serve: `serve run agent_server.ray.app:app config=FILE data=FOLDER`.

Every node reads its own environment, so all must be started with the same variables. Changes of the
file take effect at the next deployment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.schema import LoggingConfig

from agent_server.admission.admission import COUNTING_SLOTS
from agent_server.app import create_app
from agent_server.ray.engines import EngineReplica, EngineReplicas, keep_replica_on_loopback
from agent_server.settings.models import settings_of_models
from agent_server.settings.ray import RaySettings
from agent_server.settings.server import ServerSettings
from terrarium import logging
from terrarium.config import Config, ConfigError, load

MAX_ONGOING = 10_000
"""Most requests at the server. High, as requests are to wait in its queue, in the queue's order,
and not in Ray Serve's routers."""

STICKY_ROUTER = RequestRouterConfig(
    request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
)
"""Consistent hashing by session: a conversation stays with the replica that has cached its
prompt."""

ENGINE_GRACE = 600.0
"""Seconds that an engine has to finish its answers when it is stopped, so that scaling down breaks
off none."""

METRICS_INTERVAL = 10
"""Seconds between two metric reports of a replica, which Ray Serve's look-back must exceed."""

COMMON_OPTIONS: Mapping[str, Any] = {
    "health_check_period_s": 1.0,  # all requests wait for a successor of the server
    "graceful_shutdown_wait_loop_s": 0.5,
    "logging_config": LoggingConfig(enable_access_log=False),  # the server writes its own
}


class Arguments(BaseModel, extra="forbid"):
    """The arguments of `serve run`; both paths must exist on every node."""

    config: Path | None = None
    data: Path = Path("data")


@serve.ingress()
class Ingress:
    """The agent server."""

    def __init__(self, config: Config, engines: Mapping[str, Any]) -> None:
        logging.configure_child("server")
        keep_replica_on_loopback()
        self._config = config
        self._engines = {name: partial(EngineReplicas, handle) for name, handle in engines.items()}

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the same ASGI application as without Ray; called by Ray Serve."""
        return create_app(self._config, replicated=self._engines)


def app(arguments: Mapping[str, str]) -> Application:
    """Build the application from `Arguments`. Raises ConfigError.

    SERVER_ADMIN_KEY is required: the address is set in Ray's own configuration, so nothing here can
    tell whether other machines reach it.
    """
    # Ray Serve itself validates only arguments whose annotation is not a string.
    paths = Arguments.model_validate(arguments)
    config = load(paths.config, paths.data)
    if config.section(ServerSettings).admin_key is None:
        raise ConfigError(
            "an agent server on Ray Serve needs a key: set SERVER_ADMIN_KEY (or [server] admin_key)"
        )
    return build(config)


def build(config: Config) -> Application:
    """Build the application of a checked configuration: the server and its engines."""
    settings = config.section(RaySettings)
    # Without a path the replicas do not watch the file, which could differ between nodes.
    config = replace(config, path=None, data=config.data.resolve())
    engines = {}
    for name, model in settings_of_models(config)[1].items():
        if model.urls:  # the server itself sends requests to upstreams
            continue
        engine: Any = serve.deployment(
            EngineReplica,
            name=f"engine-{name}",
            max_ongoing_requests=model.slot_count + COUNTING_SLOTS,
            ray_actor_options={"num_cpus": model.threads, "num_gpus": settings.engine_gpus},
            request_router_config=STICKY_ROUTER,
            autoscaling_config=AutoscalingConfig(
                min_replicas=settings.min_engines,
                max_replicas=settings.max_engines,
                target_ongoing_requests=model.slot_count,
                policy=AutoscalingPolicy(
                    policy_function="agent_server.ray.engines:engines_by_demand"
                ),
                look_back_period_s=max(METRICS_INTERVAL + 1, settings.upscale_delay),
                upscale_delay_s=settings.upscale_delay,
                downscale_delay_s=settings.downscale_delay,
            ),
            graceful_shutdown_timeout_s=ENGINE_GRACE,
            **COMMON_OPTIONS,
        )
        engines[name] = engine.bind(config, name)
    ingress: Any = serve.deployment(
        Ingress,
        name="ingress",
        num_replicas=1,
        max_ongoing_requests=MAX_ONGOING,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=10.0,
        **COMMON_OPTIONS,
    )
    application: Application = ingress.bind(config, engines)
    return application
