"""Put an engine behind its admission queue, and record what each request uses.

It is the only way to an engine, so that no endpoint can generate tokens past it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import structlog

from agent_server.admission.fair_queue import QueuedRequest
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.quota import Charge, Quotas
from agent_server.engine_protocol import Chunk, Chunks, Engine, ModelInfo, TokenCount
from agent_server.errors import ApiError, Unsupported
from agent_server.metering.metrics import Metrics
from agent_server.metering.request_context import RequestContext, current_request
from agent_server.metering.usage_recorder import UsageRecorder
from terrarium.cancellation import ScopeCancelled
from terrarium.usage import TokenUsage

SAYING = ("content", "reasoning_content", "tool_calls")
"""What of a delta people or programs wait for."""

NOTHING = TokenUsage()


@dataclass(slots=True)
class EngineCall:
    """Who asks, and what the answer has brought so far; `variant` is the model that is asked for
    where the engine has several."""

    context: RequestContext
    request: QueuedRequest
    charge: Charge | None
    prompt: int
    variant: str | None = None
    pieces: int = 0
    first: float | None = None
    usage: TokenUsage | None = None

    def observe(self, chunk: Chunk) -> None:
        """Take note of a part of the answer."""
        if self.first is None and _says_something(chunk):
            self.first = time.monotonic()
        if isinstance(usage := chunk.get("usage"), dict):
            read = TokenUsage.from_wire(usage)
            self.usage = read if self.usage is None else self.usage.beside(read)
        if chunk.get("choices"):
            self.pieces += 1

    def model(self, name: str) -> str:
        """What the model behind the engine `name` is called by those who ask for it."""
        return f"{name}:{self.variant}" if self.variant else name

    def total_usage(self) -> TokenUsage:
        """What it took; an estimate where the answer broke off, nothing where none came."""
        return self.usage or (TokenUsage(self.prompt, self.pieces) if self.pieces else NOTHING)


def _says_something(chunk: Chunk) -> bool:
    return any(
        choice.get("text") or any((choice.get("delta") or {}).get(key) for key in SAYING)
        for choice in chunk.get("choices") or ()
    )


log = structlog.get_logger()

BYTES_PER_TOKEN = 4
FIRST_GUESS = 128
"""Tokens of an answer, before one has been seen."""

PROBE = 10.0
"""Seconds in which an engine that has failed must make a token to be ready again."""

_EMA_ALPHA = 0.1
"""How much the last answer counts in the running mean of answers' lengths."""


@dataclass(frozen=True, slots=True)
class Metering:
    """Where it is written down what was used, the same for all engines."""

    quotas: Quotas
    recorder: UsageRecorder
    metrics: Metrics
    log_prompts: bool = False


class AdmittedEngine:
    """Another engine, whose chats and embeddings are let in one by one."""

    def __init__(
        self, engine: Engine, name: str, queue: AdmissionQueue, metering: Metering
    ) -> None:
        self._engine = engine
        self._name = name
        self._queue = queue
        self._metering = metering
        self._length = float(FIRST_GUESS)
        self._failed = False
        metering.metrics.watch_queue(name, queue.scheduler)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way or waits."""
        return self._queue.is_busy or self._engine.is_busy

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start and stop the engine."""
        return self._engine.lifespan()

    async def ready(self) -> bool:
        """Whether the engine could make a token now; after a failure it has to make one."""
        if not await self._engine.ready():
            return False
        if self._failed:
            self._failed = not await self._probe()
        return not self._failed

    async def model_info(self) -> ModelInfo:
        """Ask the engine what its model can do."""
        return await self._engine.model_info()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens: nothing is generated, so nobody waits."""
        return await self._engine.count(body)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request when there is a place. Raises ApiError."""
        call = await self._acquire(body)
        try:
            answer = await self._engine.embeddings(body)
            call.usage = TokenUsage.from_wire(answer.get("usage") or {})
            return answer
        finally:
            self._release(call)

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer when there is a place. Raises ApiError."""
        call = await self._acquire(body)
        try:
            yields = self._queue.scheduler.yields
            if yields and call.request.background:
                chat = self._stream_preemptible(call, body, session)
            else:
                chat = self._engine.chat(body, session)
            async with aclosing(chat) as chunks:
                async for chunk in chunks:
                    if yields and not call.pieces:
                        self._queue.on_first_token(call.request)
                    call.observe(chunk)
                    yield chunk
        except ApiError as error:
            self._failed |= error.status >= 500 and not isinstance(error, Unsupported)
            raise
        finally:
            self._release(call)

    async def _stream_preemptible(
        self, call: EngineCall, body: Mapping[str, Any], session: str | None
    ) -> Chunks:
        """Stream an answer whose beginning may have to make room, and then begins again."""
        while True:
            async with aclosing(self._engine.chat(body, session)) as chunks:
                with suppress(ScopeCancelled):
                    first = await self._queue.await_first_token(call.request, chunks)
                    if first is not None:
                        yield first
                    async for chunk in chunks:
                        yield chunk
                    return
            with self._measure_wait(call.context):
                await self._queue.reacquire(call.request)

    async def _probe(self) -> bool:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        try:
            async with asyncio.timeout(PROBE), aclosing(self._engine.chat(body, None)) as chunks:
                return bool((await anext(chunks)).get("choices"))
        except (ApiError, StopAsyncIteration, TimeoutError):
            return False

    async def _acquire(self, body: Mapping[str, Any]) -> EngineCall:
        """Wait for a place. Raises RateLimited or QueueTimeout."""
        context, metering = current_request(), self._metering
        if metering.log_prompts:
            log.info("engine.asked", model=self._name, body=body)
        prompt, length = context.size // BYTES_PER_TOKEN, min(self._length, _limit(body))
        charge = metering.quotas.charge(
            context.key, round(prompt + length), time.time(), again=context.attempts
        )
        request = QueuedRequest(
            context.key.name,
            prompt + length,
            context.key.weight,
            context.background,
            context.key.parallel,
        )
        try:
            with self._measure_wait(context):
                await self._queue.acquire(request)
        except BaseException:
            if charge:
                metering.quotas.reconcile(charge, 0)
            raise
        return EngineCall(context, request, charge, prompt, body.get("model"))

    @contextmanager
    def _measure_wait(self, context: RequestContext) -> Iterator[None]:
        """Count the time of the block as waiting for a place."""
        began = time.monotonic()
        try:
            yield
        finally:
            waited = time.monotonic() - began
            context.queue_seconds += waited
            self._metering.metrics.observe_wait(context, self._name, waited)

    def _release(self, call: EngineCall) -> None:
        """Give the place back and write down what was used."""
        used, now, metering = call.total_usage(), time.monotonic(), self._metering
        self._queue.release(call.request, used.prompt - used.cached + used.completion)
        if call.charge:
            metering.quotas.reconcile(call.charge, used.prompt + used.completion)
        context = call.context
        context.attempts += 1
        if used == NOTHING:
            return
        if used.completion:
            self._failed = self._failed and call.usage is None
            self._length += (used.completion - self._length) * _EMA_ALPHA
        metering.metrics.count_usage(context, self._name, used, call.first, now)
        is_first = context.usage is None
        metering.recorder.record(
            context.key.name, call.model(self._name), used, requests=int(is_first)
        )
        context.usage = used if context.usage is None else context.usage + used


def _limit(body: Mapping[str, Any]) -> float:
    limit = body.get("max_tokens")
    return limit if isinstance(limit, int) else math.inf
