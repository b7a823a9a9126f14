"""Replicas of an embedded engine, and a server's side of them."""

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
from agent_server.ray.queue_client import LOST, PAUSE
from agent_server.ray.shared_admission import RENEWAL
from agent_server.settings.models import ModelSettings, settings_of_models
from terrarium import logging
from terrarium.config import Config

log = structlog.get_logger()

DEMAND = "demand"
"""The metric by which engines are scaled: requests of the model that run or wait."""

ATTEMPTS = 100
"""Engines that are asked for one answer before its first chunk: for 20 seconds, in which one that
takes the place of another loads its model."""

LOOK = 5.0
"""Seconds in which an engine must say whether it is ready."""


class EngineReplica:
    """One embedded engine in a process of Ray Serve, which offers its places to the queue."""

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
        """Stream the chunks of an answer, and an ApiError as the last of them."""
        try:
            async with aclosing(self._engine.chat(body, session)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ApiError as error:
            yield error

    async def count(self, body: Mapping[str, Any]) -> TokenCount | ApiError:
        """Count tokens, or return the error."""
        try:
            return await self._engine.count(body)
        except ApiError as error:
            return error

    async def ready(self) -> bool:
        """Return whether the engine could make a token now."""
        return await self._engine.ready()

    async def model_info(self) -> ModelInfo | ApiError:
        """Return what the model can do, or the error."""
        try:
            return await self._engine.model_info()
        except ApiError as error:
            return error

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metrics for `engines_by_demand`."""
        return {DEMAND: float(self._demand)}

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
            await asyncio.sleep(PAUSE)
        while True:
            with suppress(*LOST):
                self._demand = await self._admission.offer.remote(self._model, self._name)
            await asyncio.sleep(RENEWAL)

    async def __del__(self) -> None:
        """Stop the engine; Ray Serve awaits this."""
        with suppress(TimeoutError, *LOST):  # the queue may have stopped before; the offer expires
            async with asyncio.timeout(RENEWAL):
                await self._admission.withdraw.remote(self._model, self._name)
        self._stop.set()
        await asyncio.wait({self._running})


def engines_by_demand(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return how many replicas there should be: as many as have places for all requests.

    Ray Serve's own policy would not see those that wait: they wait in the queue, at no replica.
    """
    told = (context.aggregated_metrics or {}).get(DEMAND, {})
    demand = max(told.values(), default=0.0)
    wanted = math.ceil(demand / context.config.target_ongoing_requests)
    least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
    return min(max(wanted, least), most), {}


class ReplicatedEngine:
    """All replicas of one engine; fits `Engine`.

    A conversation stays with one replica by consistent hashing, and with its cache. When that one
    is full the next on the ring gets the request, and when it fails before the first chunk any.
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
        """True, as each of the replicas keeps the prompts of several keys apart."""
        return True

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Do nothing: the replicas run by themselves."""
        yield

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer. Raises ApiError."""
        self._in_flight += 1
        try:
            problem = EngineUnavailable("no engine can be reached")
            for attempt in range(ATTEMPTS):
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
                await asyncio.sleep(PAUSE)
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
        except LOST as error:
            log.warning("engine.lost", error=type(error).__name__)
            raise EngineUnavailable("the engine went away; ask again") from error
        finally:
            if not has_ended:
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
        """Return whether any replica could make a token now."""
        try:
            async with asyncio.timeout(LOOK):
                return bool(await self._handle.ready.remote())
        except (TimeoutError, *LOST):
            return False

    async def model_info(self) -> ModelInfo:
        """Ask any replica. Raises ApiError."""
        info = await self._call("model_info")
        assert isinstance(info, ModelInfo)
        return info

    async def _call(self, method: str, *arguments: Any) -> Any:
        """Return what any replica answers. Raises ApiError."""
        for _ in range(ATTEMPTS):
            try:
                answer = await getattr(self._handle, method).remote(*arguments)
            except LOST as error:
                log.warning("engine.lost", error=type(error).__name__)
                await asyncio.sleep(PAUSE)
                continue
            if isinstance(answer, ApiError):
                raise answer
            return answer
        raise EngineUnavailable("no engine can be reached")
