"""An engine behind its admission queue, with the accounting of each request.

Endpoints reach engines only through `AdmittedEngine`, so none can bypass admission or quotas.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import structlog

from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import QueuedRequest
from agent_server.engine_protocol import (
    TRACEPARENT,
    Chunk,
    Chunks,
    Engine,
    EngineState,
    ModelInfo,
    TokenCount,
)
from agent_server.engines.prompt_guard import CACHE_SALT, cache_salt
from agent_server.errors import ApiError, Unsupported
from agent_server.metering.accounts import Metering, Reservation, Spender
from agent_server.metering.request_context import ANYBODY, PRIORITIES, RequestContext
from agent_server.schemas.chat_answer import has_output
from storage.usage.usage import TokenUsage
from terrarium.cancellation import ScopeCancelled

NO_USAGE = TokenUsage()

TEMPLATE_MARGIN = 16
"""Tokens that a chat template appends after the last message to begin the answer. The next prompt
need not have them in that place, so a cache hit on them could be due to another key. Templates have
up to about ten."""

MAX_PROMPTS = 256
"""Prompts remembered per key."""


def prefix_digests(body: Mapping[str, Any]) -> Sequence[bytes]:
    """Return the digests of a prompt up to and including each message; a bare text has one.

    The model and the tools, which templates render before the messages, are part of every digest.
    """
    head = {key: body[key] for key in ("model", "tools", "tool_choice") if key in body}
    state = blake2b(_encoded(head), digest_size=16)
    digests = []
    for message in body["messages"] if "messages" in body else [body.get("prompt")]:
        text = _encoded(message)
        # The length prefix makes the concatenation of messages unambiguous.
        state.update(b"%d:%b" % (len(text), text))
        digests.append(state.copy().digest())
    return digests


class PromptHistory:
    """The lengths in tokens of the prompts that each key has sent to one engine, which limit the
    number of cached tokens that it is told.

    If an engine shares its prefix cache between keys, `cached_tokens` is a side channel: a key that
    guesses the beginning of another key's prompt sees the number grow with each correct word. With
    such an engine a key is told at most what its own earlier prompts explain: the length of the
    longest of them whose messages are all an unchanged prefix of this prompt, less
    `TEMPLATE_MARGIN`; 0 if there is none. Only digests are stored, and only of the last
    `MAX_PROMPTS` prompts of each key.
    """

    def __init__(self) -> None:
        self._sent: dict[str, OrderedDict[bytes, int]] = {}

    def cached_limit(self, key: str, digests: Sequence[bytes]) -> int:
        """Return the largest number of cached tokens to report to `key` for a prompt."""
        sent: Mapping[bytes, int] = self._sent.get(key, {})
        # The longest prefix comes first.
        known = (sent[digest] for digest in reversed(digests) if digest in sent)
        return max(0, next(known, 0) - TEMPLATE_MARGIN)

    def add(self, key: str, digests: Sequence[bytes], tokens: int) -> None:
        """Record a prompt of `tokens` tokens that the engine has read."""
        sent = self._sent.setdefault(key, OrderedDict[bytes, int]())
        sent[digests[-1]] = tokens
        sent.move_to_end(digests[-1])
        if len(sent) > MAX_PROMPTS:
            sent.popitem(last=False)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass(slots=True)
class EngineCall:
    """A request that has a slot: its sender, its reservation and its usage so far.

    `prompt` is the estimated number of prompt tokens, `digests` those of the prompt's prefixes.
    `cached_limit` is the largest number of cached tokens that the key may see (None: no limit).
    `pieces` counts chunks with choices, and `first` is the time of the first token, on the
    monotonic clock; None if the engine sends the answer as a whole.
    """

    context: RequestContext
    request: QueuedRequest
    reservation: Reservation
    spender: Spender
    prompt: int
    is_whole: bool
    digests: Sequence[bytes] = ()
    cached_limit: int | None = None
    pieces: int = 0
    first: float | None = None
    usage: TokenUsage | None = None

    def observe(self, chunk: Chunk) -> None:
        """Update the time of the first token and the number of chunks; take the usage out."""
        if self.first is None and not self.is_whole and has_output(chunk):
            self.first = time.monotonic()
        usage = chunk.pop("usage", None)
        if isinstance(usage, dict) and usage:
            read = TokenUsage.from_wire(usage)
            # llama.cpp reports one usage for each of n choices; their common prompt counts once.
            self.usage = read if self.usage is None else self.usage.merge_choice(read)
        if chunk.get("choices"):
            self.pieces += 1

    def total_usage(self) -> TokenUsage:
        """Return the reported usage, else an estimate from the output so far."""
        return self.usage or (TokenUsage(self.prompt, self.pieces) if self.pieces else NO_USAGE)

    def told_usage(self, used: TokenUsage) -> TokenUsage:
        """Return what the key is told of its usage: at most `cached_limit` cached tokens."""
        return used if self.cached_limit is None else used.limit_cached(self.cached_limit)


log = structlog.get_logger()

BYTES_PER_TOKEN = 4
"""A rough average, to estimate the tokens of a prompt from the size of the request body."""
INITIAL_ANSWER_TOKENS = 128
"""Assumed length of an answer in tokens, until answers have been seen."""

PROBE_TIMEOUT = 10.0
"""Seconds within which a failed engine must produce a token to count as ready again."""

_EMA_ALPHA = 0.1
"""Weight of the latest answer in the exponential moving average of answer lengths."""


class AdmittedEngine:
    """An engine whose requests are charged, wait for a slot, and are recorded at their end.

    Counting tokens has a queue of its own, `counting`, so that it does not wait for answers.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        queue: AdmissionQueue,
        counting: AdmissionQueue,
        metering: Metering,
    ) -> None:
        self._engine = engine
        self._name = name
        self._queue = queue
        self._counting = counting
        self._metering = metering
        self._mean_answer_tokens = float(INITIAL_ANSWER_TOKENS)
        self._failed = False
        self._history = PromptHistory()

    @property
    def is_busy(self) -> bool:
        """True while a request is running or waiting."""
        return self._queue.is_busy or self._counting.is_busy

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start and stop the engine, and with it the metrics of its queue."""
        scheduler = self._queue.scheduler

        def state() -> EngineState:
            count = scheduler.waiting_count
            waiting = {name: count(background=name == "background") for name in PRIORITIES}
            return EngineState(scheduler.slots, scheduler.running, waiting, self._engine.upstreams)

        with self._metering.metrics.watch_engine(self._name, state):
            async with self._engine.lifespan():
                yield

    async def ready(self) -> bool:
        """Return whether the engine can answer now; once failed, it must first produce a token."""
        if not await self._engine.ready():
            return False
        if not self._failed:
            return True
        # This request bypasses the queue.
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        try:
            async with (
                asyncio.timeout(PROBE_TIMEOUT),
                aclosing(self._engine.chat(body, None)) as chunks,
            ):
                self._failed = not (await anext(chunks)).get("choices")
        except (ApiError, StopAsyncIteration, TimeoutError):
            self._failed = True
        return not self._failed

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Ask the engine to describe its model, or another one of its. Raises ApiError."""
        return await self._engine.model_info(model)

    async def count(self, body: Mapping[str, Any], context: RequestContext) -> TokenCount:
        """Count the tokens of a prompt once the queue for counting admits it. Raises ApiError."""
        accounts, expected = self._metering.accounts, context.size // BYTES_PER_TOKEN
        # No spender: counting has quotas of its own and is in no budget.
        reservation = accounts.reserve(context.key, expected)
        request, counted = _queued(context, expected), None
        try:
            await self._counting.acquire(request)
            try:
                counted = await self._engine.count(_engine_body(body, context))
                return counted
            finally:
                self._counting.release(request, expected)
        finally:
            accounts.settle(reservation, counted.count if counted else 0, 0.0)

    async def embeddings(self, body: Mapping[str, Any], context: RequestContext) -> dict[str, Any]:
        """Answer an embeddings request once a slot is free. Raises ApiError."""
        with self._span("embeddings", body, context) as (inner, attributes):
            call = await self._acquire(body, inner)
            try:
                answer = await self._engine.embeddings(_traced(body, inner))
                call.usage = TokenUsage.from_wire(answer.get("usage") or {})
                return answer
            finally:
                self._release(call, attributes)

    async def chat(self, body: Mapping[str, Any], context: RequestContext) -> Chunks:
        """Stream the answer once a slot is free. Raises ApiError.

        The last chunk has the usage of all choices, if the engine reports any, and no choices.
        """
        operation = "text_completion" if "prompt" in body else "chat"
        with self._span(operation, body, context) as (inner, attributes):
            call = await self._acquire(body, inner)
            try:
                chunk, chunks = await self._start(call, body)
                async with aclosing(chunks):
                    while chunk is not None:
                        if self._queue.scheduler.preemptive and not call.pieces:
                            self._queue.on_first_token(call.request)
                        call.observe(chunk)
                        yield chunk
                        chunk = await anext(chunks, None)
                if call.usage:
                    yield {"choices": [], "usage": call.told_usage(call.usage).as_wire()}
            except ApiError as error:
                # A server error makes the engine unready until it has produced a token.
                self._failed |= error.status >= 500 and not isinstance(error, Unsupported)
                raise
            except asyncio.CancelledError:
                if call.is_whole:
                    # How much was generated for a client that has left is unknown: the estimate
                    # counts.
                    call.pieces = int(min(self._mean_answer_tokens, body["max_tokens"]))
                raise
            finally:
                self._release(call, attributes)

    async def _start(
        self, call: EngineCall, body: Mapping[str, Any]
    ) -> tuple[Chunk | None, Chunks]:
        """Return the first chunk (None if the answer is empty) and the generator of the rest.

        Where requests share a processor, a background request can be preempted until its first
        chunk: its generation is closed, it waits for a slot again, and then it starts from the
        beginning.
        """
        is_preemptible = self._queue.scheduler.preemptive and call.request.background
        while True:
            salted = _engine_body(body, call.context)
            chunks, has_started = self._engine.chat(salted, call.context.session), False
            try:
                if is_preemptible:
                    first = await self._queue.await_first_token(call.request, chunks)
                else:
                    first = await anext(chunks, None)
                has_started = True
                return first, chunks
            except ScopeCancelled:
                pass  # preempted; only `await_first_token` raises it
            finally:
                # `chat` closes the generator only after it has got it from here.
                if not has_started:
                    await chunks.aclose()
            with self._measure_wait(call.context):
                await self._queue.reacquire(call.request)

    @contextmanager
    def _span(
        self, operation: str, body: Mapping[str, Any], context: RequestContext
    ) -> Iterator[tuple[RequestContext, dict[str, Any]]]:
        """Make the block a span; yield its context and attributes. `operation` is a GenAI name."""
        model = self._model_name(body)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "terrarium",
            "gen_ai.request.model": model,
        }
        tracing = self._metering.tracing
        with tracing.span(f"{operation} {model}", context, attributes, "CLIENT") as inner:
            yield inner, attributes

    def _model_name(self, body: Mapping[str, Any]) -> str:
        """Return the model's name, with that of the one that `body` asks the upstream for."""
        variant = body.get("model")
        return f"{self._name}:{variant}" if variant else self._name

    async def _acquire(self, body: Mapping[str, Any], context: RequestContext) -> EngineCall:
        """Reserve quota and budget, then wait for a slot. Raises RateLimited or QueueTimeout."""
        metering = self._metering
        if metering.log_prompts:
            log.info("engine.asked", model=self._name, body=body)
        # Estimates, as nothing has been tokenized yet; the end of the request corrects them.
        prompt, limit = context.size // BYTES_PER_TOKEN, body.get("max_tokens")
        length = self._mean_answer_tokens
        if isinstance(limit, int):
            length = min(length, limit)
        model = self._model_name(body)
        spender = Spender(context.key.name, model, context.channel, context.person)
        # The model that answers for another one counts against other budgets, which have not been
        # checked yet, even if the other one has generated something.
        reservation = metering.accounts.reserve(
            context.key,
            round(prompt + length),
            spender,
            is_admitted=context.meter.is_admitted,
            is_continuation=context.meter.model == model,
        )
        context.meter.is_admitted = True
        request = _queued(context, prompt + length)
        try:
            with self._measure_wait(context):
                await self._queue.acquire(request)
        # Also on cancellation: nothing was used.
        except BaseException:
            metering.accounts.settle(reservation, 0, 0.0)
            raise
        is_whole = body.get("stream") is False
        call = EngineCall(context, request, reservation, spender, prompt, is_whole)
        # Side channel: a count of cached tokens may reveal what other keys have sent. The
        # operator's own keys may know that, and engines that isolate keys reveal nothing; all
        # others are limited to what their own prompts explain.
        is_count_visible = context.key.is_own or (
            self._engine.isolates_keys and context.key != ANYBODY
        )
        if not is_count_visible and not body.keys().isdisjoint(("messages", "prompt")):
            call.digests = prefix_digests(body)
            call.cached_limit = self._history.cached_limit(context.key.name, call.digests)
        return call

    @contextmanager
    def _measure_wait(self, context: RequestContext) -> Iterator[None]:
        """Measure the duration of the block as waiting for a slot, also when it raises."""
        began = time.monotonic()
        try:
            with self._metering.tracing.span("queue", context, {}):
                yield
        finally:
            waited = time.monotonic() - began
            context.meter.queue_seconds += waited
            self._metering.metrics.observe_wait(context, self._name, waited)

    def _release(self, call: EngineCall, attributes: dict[str, Any]) -> None:
        """Release the slot, record the usage, also as attributes, and settle the reservation."""
        context, metering, now = call.context, self._metering, time.monotonic()
        used, meter, cost = call.total_usage(), context.meter, 0.0
        attributes["gen_ai.usage.input_tokens"] = used.prompt
        attributes["gen_ai.usage.output_tokens"] = used.completion
        # The scheduler shares out computation, so cached tokens are free there; quotas count them.
        self._queue.release(call.request, used.prompt - used.cached + used.completion)
        if used != NO_USAGE:
            if call.digests and call.usage:
                self._history.add(context.key.name, call.digests, used.prompt)
            if used.completion:
                # The engine reports a usage at the end of an answer: it works again.
                self._failed = self._failed and call.usage is None
                newest = used.completion - self._mean_answer_tokens
                self._mean_answer_tokens += newest * _EMA_ALPHA
            # Keys can read at /usage what is recorded. The cost is computed from the same count:
            # that of the true one would give it away.
            told = call.told_usage(used)
            metering.metrics.count_usage(context, self._name, told, call.first, now)
            cost = metering.recorder.record(call.spender, told, requests=int(meter.usage is None))
            meter.usage = told if meter.usage is None else meter.usage + told
            meter.model = call.spender.model
        metering.accounts.settle(call.reservation, used.prompt + used.completion, cost)


def _engine_body(body: Mapping[str, Any], context: RequestContext) -> Mapping[str, Any]:
    """Return the body with the request's trace and with the cache salt of its key, which keeps its
    prompts apart from others'.

    The operator's own keys have none: they may know of one another, and a salt costs a small model
    right answers (47 of 60 instead of 50). Requests without a key have none either.
    """
    if not context.key.is_own and context.key != ANYBODY:
        body = {**body, CACHE_SALT: cache_salt(context.key.name)}
    return _traced(body, context)


def _traced(body: Mapping[str, Any], context: RequestContext) -> Mapping[str, Any]:
    """Return the body with the span of the request, if it has one, as its `traceparent`."""
    return {**body, TRACEPARENT: context.traceparent} if context.traceparent else body


def _queued(context: RequestContext, tokens: float) -> QueuedRequest:
    """Return the queue entry of a request that will cost about `tokens`."""
    key = context.key
    return QueuedRequest(key.name, tokens, key.weight, context.background, key.parallel)
