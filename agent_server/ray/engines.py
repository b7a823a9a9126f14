"""Replicas of an embedded engine, and the client by which a server uses them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from secrets import token_hex
from typing import Any

import structlog
from ray.serve.config import AutoscalingContext

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.embeddings import HOW_TO_GET
from agent_server.engines.embeddings import NAME as EMBEDDER
from agent_server.engines.factory import create_engine
from agent_server.errors import ApiError, EngineUnavailable, Unsupported
from agent_server.model_files import store
from agent_server.ray.loopback import keep_replica_on_loopback
from agent_server.ray.queue_client import LOST_PROCESS_ERRORS, RETRY_PAUSE
from agent_server.ray.shared_admission import RENEWAL_INTERVAL
from agent_server.settings.models import ModelSettings, settings_of_models
from terrarium import logging
from terrarium.config import Config

log = structlog.get_logger()

DEMAND_METRIC = "demand"
"""Name of the autoscaling metric: the number of the model's requests that run or wait."""

MAX_ATTEMPTS = 100
"""Most attempts for one answer before its first chunk: for 20 seconds, enough for an engine that
replaces another to load its model."""

READY_TIMEOUT = 5.0
"""Seconds within which an engine must report whether it is ready."""


class EngineReplica:
    """One embedded engine in a Ray Serve replica, which offers its slots to the shared queue."""

    def __init__(self, config: Config, model: str, admission: Any) -> None:
        logging.configure_child("engine")
        keep_replica_on_loopback()
        settings = settings_of_models(config)[1][model]
        if isinstance(settings, ModelSettings):
            store.ensure(settings)
        self._engine = create_engine(model, settings)
        self._model = model
        self._admission = admission
        self._name = token_hex(8)
        self._demand = 0
        self._stop = asyncio.Event()
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Any:
        """Stream the chunks of an answer. An ApiError is the last item instead of being raised:
        Ray would wrap an exception in one of its own."""
        try:
            async with aclosing(self._engine.chat(body, session)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ApiError as error:
            yield error

    async def count(self, body: Mapping[str, Any]) -> TokenCount | ApiError:
        """Count tokens; an ApiError is returned, not raised."""
        try:
            return await self._engine.count(body)
        except ApiError as error:
            return error

    async def ready(self) -> bool:
        """Return whether the engine can generate now."""
        return await self._engine.ready()

    async def model_info(self) -> ModelInfo | ApiError:
        """Return the model's description; an ApiError is returned, not raised."""
        try:
            return await self._engine.model_info()
        except ApiError as error:
            return error

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metric for `engines_by_demand`; Ray Serve calls this at intervals."""
        return {DEMAND_METRIC: float(self._demand)}

    async def _run(self) -> None:
        async with self._engine.lifespan():
            offering = asyncio.create_task(self._keep_offering())
            try:
                await self._stop.wait()
            finally:
                offering.cancel()
                await asyncio.wait({offering})

    async def _keep_offering(self) -> None:
        while not await self._engine.ready():  # noqa: ASYNC110
            await asyncio.sleep(RETRY_PAUSE)
        # An offer expires unless it is renewed, so that a dead engine has no slots any more.
        while True:
            with suppress(*LOST_PROCESS_ERRORS):
                self._demand = await self._admission.offer.remote(self._model, self._name)
            await asyncio.sleep(RENEWAL_INTERVAL)

    async def __del__(self) -> None:
        """Stop the engine; Ray Serve awaits this."""
        with suppress(
            TimeoutError, *LOST_PROCESS_ERRORS
        ):  # the queue may have stopped before; the offer expires
            async with asyncio.timeout(RENEWAL_INTERVAL):
                await self._admission.withdraw.remote(self._model, self._name)
        self._stop.set()
        await asyncio.wait({self._running})


def engines_by_demand(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return the wanted number of replicas: enough slots for all requests, within the limits.

    An autoscaling policy, called by Ray Serve. Its own policies count requests at the replicas and
    would miss those that wait, since they wait in the shared queue.
    """
    # Each replica reports the demand of the whole model, so the values are not added.
    told = (context.aggregated_metrics or {}).get(DEMAND_METRIC, {})
    demand = max(told.values(), default=0.0)
    wanted = math.ceil(demand / context.config.target_ongoing_requests)
    least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return min(max(wanted, least), most), {}


class ReplicatedEngine:
    """All replicas of one engine; fits `Engine`.

    Consistent hashing keeps a conversation on one replica, whose cache has its prompt. If that
    replica is full, the next one on the ring gets the request. After a failure before the first
    chunk any replica may get it.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._in_flight = 0

    @property
    def is_busy(self) -> bool:
        """True while a request of this server is in flight."""
        return self._in_flight > 0

    @property
    def isolates_keys(self) -> bool:
        """True: every replica isolates the cached prompts of different keys."""
        return True

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Do nothing: Ray Serve starts and stops the replicas."""
        yield

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer. Raises ApiError."""
        self._in_flight += 1
        try:
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
        finally:
            self._in_flight -= 1

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
        counted = await self._call("count", dict(body))
        assert isinstance(counted, TokenCount)
        return counted

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse: an embedded engine is loaded for chats."""
        raise Unsupported(f"this model makes no embeddings; {EMBEDDER} does. {HOW_TO_GET}")

    async def ready(self) -> bool:
        """Return whether the replica that Ray Serve chooses can generate now."""
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                return bool(await self._handle.ready.remote())
        except (TimeoutError, *LOST_PROCESS_ERRORS):
            return False

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Return the model's description from any replica, which has one. Raises ApiError."""
        info = await self._call("model_info")
        assert isinstance(info, ModelInfo)
        return info

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Call a method of any replica, again if that one is lost. Raises ApiError."""
        for _ in range(MAX_ATTEMPTS):
            try:
                answer = await getattr(self._handle, method).remote(*arguments)
            except LOST_PROCESS_ERRORS as error:
                log.warning("engine.lost", error=type(error).__name__)
                await asyncio.sleep(RETRY_PAUSE)
                continue
            if isinstance(answer, ApiError):
                raise answer
            return answer
        raise EngineUnavailable("no engine can be reached")
