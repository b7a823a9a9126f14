"""Replicas of an embedded engine, and the client by which the server uses them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import ray.util
import structlog
from ray import serve
from ray.exceptions import RayError
from ray.serve._private import replica
from ray.serve.config import AutoscalingContext
from ray.serve.exceptions import RayServeException

from agent_server.admission.admission import create_engine, reserved_slots
from agent_server.admission.queue import AdmissionQueue
from agent_server.engine_protocol import Chunks, Engine, ModelInfo, TokenCount
from agent_server.errors import ApiError, EngineUnavailable
from agent_server.model_files import store
from agent_server.settings.models import ModelSettings, settings_of_models
from terrarium import logging
from terrarium.config import Config

log = structlog.get_logger()

LOST_PROCESS_ERRORS = (RayError, RayServeException)
"""Exceptions by which Ray reports that the other process has died or cannot be reached."""

DEMAND_METRIC = "demand"
"""Name of the autoscaling metric: the number of the model's requests that run or wait."""

DEMAND_LIFETIME = 10.0
"""Seconds for which a replica reports the demand that it was told last."""

CHECK_INTERVAL = 1.0
"""Seconds between two counts of the replicas, after which their slots are in the queue."""

MAX_ATTEMPTS = 100
"""Most attempts for one answer before its first chunk: for 20 seconds, enough for an engine that
replaces another to load its model."""

RETRY_PAUSE = 0.2
"""Seconds between two attempts."""

READY_TIMEOUT = 5.0
"""Seconds within which an engine must report whether it is ready."""

LOOPBACK = "127.0.0.1"


def keep_replica_on_loopback() -> None:
    """Make this replica open its port on loopback, if its node is on loopback.

    To be called in a replica's constructor: after it, Ray Serve opens a port on all interfaces, for
    calls between deployments. That port needs no token and unpickles what it receives, so whoever
    reaches it can run code there, and Ray has no setting for its address.
    """
    if ray.util.get_node_ip_address() != LOOPBACK:
        return
    add_port = replica.add_port_to_grpc_server

    def on_loopback(server: object, address: str) -> int:
        port: int = add_port(server, f"{LOOPBACK}:{address.rpartition(':')[2]}")
        return port

    replica.add_port_to_grpc_server = on_loopback


class EngineReplica:
    """One embedded engine in a Ray Serve replica, which is running once the model is loaded."""

    # Ray Serve awaits it.
    async def __init__(self, config: Config, model: str) -> None:  # type: ignore[misc]
        logging.configure_child("engine")
        keep_replica_on_loopback()
        settings = settings_of_models(config)[1][model]
        if isinstance(settings, ModelSettings):
            await asyncio.to_thread(store.ensure, settings)
        self._engine = create_engine(model, settings)
        self._demand, self._told = 0, -math.inf
        self._stop = asyncio.Event()

        async def run() -> None:
            async with self._engine.lifespan():
                await self._stop.wait()

        self._running = asyncio.get_running_loop().create_task(run())
        while not await self._engine.ready():
            await asyncio.sleep(RETRY_PAUSE)
            if self._running.done():
                await self._running

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Any:
        """Stream the chunks of an answer. An ApiError is the last item instead of being raised:
        Ray would wrap an exception in one of its own."""
        try:
            async with aclosing(self._engine.chat(body, session)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ApiError as error:
            yield error

    async def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method of the engine; an ApiError is returned, not raised."""
        try:
            return await getattr(self._engine, method)(*arguments)
        except ApiError as error:
            return error

    async def note_demand(self, demand: int) -> None:
        """Take the number of the model's requests that run or wait, to report it."""
        self._demand, self._told = demand, time.monotonic()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metric for `engines_by_demand`; Ray Serve calls this at intervals."""
        is_recent = time.monotonic() - self._told < DEMAND_LIFETIME
        return {DEMAND_METRIC: float(self._demand) if is_recent else 0.0}

    async def __del__(self) -> None:
        """Stop the engine; Ray Serve awaits this."""
        self._stop.set()
        await asyncio.wait({self._running})


def engines_by_demand(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return the wanted number of replicas: enough slots for all requests, within the limits.

    An autoscaling policy, called by Ray Serve. Its own policies count requests at the replicas and
    would miss those that wait, since they wait in the server's queue.
    """
    # Each replica reports the demand of the whole model, so the values are not added.
    told = (context.aggregated_metrics or {}).get(DEMAND_METRIC, {})
    demand = max(told.values(), default=0.0)
    wanted = math.ceil(demand / context.config.target_ongoing_requests)
    least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return min(max(wanted, least), most), {}


class EngineReplicas(Engine):
    """All replicas of one engine, behind one queue.

    Consistent hashing keeps a conversation on one replica, whose cache has its prompt. If that
    replica is full, the next one on the ring gets the request. After a failure before the first
    chunk any replica may get it.
    """

    isolates_keys = True  # as every replica does

    def __init__(self, handle: Any, queue: AdmissionQueue) -> None:
        self._handle = handle
        self._queue = queue

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Resize the queue; Ray Serve itself starts and stops the replicas."""
        following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def _follow(self) -> None:
        """Set the slots of the queue to those of the running replicas, of one at least as requests
        wait for the first one too; tell the replicas how many requests run or wait."""
        queue, scheduler = self._queue, self._queue.scheduler
        of_one = scheduler.slots
        name = serve.get_replica_context().app_name
        while True:
            # While Ray Serve's controller is away, the number of replicas stays as it is.
            with suppress(KeyError, TimeoutError, *LOST_PROCESS_ERRORS):
                deployments = (await asyncio.to_thread(serve.status)).applications[name].deployments
                states = deployments[self._handle.deployment_name].replica_states
                running = states.get("RUNNING", 0)
                slots = of_one * max(1, running)
                if slots != scheduler.slots:
                    queue.resize(slots, reserved_slots(slots))
                if running:
                    demand = scheduler.running + scheduler.waiting
                    async with asyncio.timeout(READY_TIMEOUT):
                        await self._handle.note_demand.remote(demand)
            await asyncio.sleep(CHECK_INTERVAL)

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer. Raises ApiError."""
        problem = EngineUnavailable("no engine can be reached")
        for attempt in range(MAX_ATTEMPTS):
            # Without a session a retry can reach another replica than the one that failed.
            chunks, has_begun = self._ask(dict(body), None if attempt else session), False
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        has_begun = True
                        yield chunk
                return
            except EngineUnavailable as error:
                if has_begun:
                    raise
                problem = error
            await asyncio.sleep(RETRY_PAUSE)
        raise problem

    async def _ask(self, body: dict[str, Any], session: str | None) -> Chunks:
        """Stream the answer of one replica. Raises ApiError."""
        handle = self._handle.options(stream=True, session_id=session or "")
        stream, has_ended = handle.chat.remote(body, session), False
        try:
            async for item in stream:
                if isinstance(item, ApiError):
                    raise item
                yield item
            has_ended = True
        except LOST_PROCESS_ERRORS as error:
            log.warning("engine.lost", error=type(error).__name__)
            raise EngineUnavailable("the engine went away; ask again") from error
        finally:
            if not has_ended:  # also when the caller has closed this generator
                stream.cancel()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens at any replica. Raises ApiError."""
        counted: TokenCount = await self._call("count", dict(body))
        return counted

    async def ready(self) -> bool:
        """Return whether the replica that Ray Serve chooses can generate now."""
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                return bool(await self._handle.call.remote("ready"))
        except (TimeoutError, *LOST_PROCESS_ERRORS):
            return False

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Return the model's description from any replica, which has one. Raises ApiError."""
        info: ModelInfo = await self._call("model_info")
        return info

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of any replica, again if that one is lost. Raises ApiError."""
        for _ in range(MAX_ATTEMPTS):
            try:
                answer = await self._handle.call.remote(method, *arguments)
            except LOST_PROCESS_ERRORS as error:
                log.warning("engine.lost", error=type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if isinstance(answer, ApiError):
                raise answer
            return answer
        raise EngineUnavailable("no engine can be reached")
