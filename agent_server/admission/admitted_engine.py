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

from agent_server.admission.fair_queue import Request
from agent_server.admission.gate import Gate
from agent_server.admission.quota import Charge, Quotas
from agent_server.engine_protocol import Chunk, Chunks, Engine, TokenCount, Traits
from agent_server.errors import ApiError, Unsupported
from agent_server.metering.metrics import Metrics
from agent_server.metering.request_context import Visit, visit
from agent_server.metering.usage_recorder import Ledger
from agent_server.usage import Usage
from terrarium.cancellation import StoppedError

SAYING = ("content", "reasoning_content", "tool_calls")
"""What of a delta people or programs wait for."""

NOTHING = Usage()


@dataclass(slots=True)
class Ask:
    """Who asks, and what the answer has brought so far; `variant` is the model that is asked for
    where the engine has several."""

    visit: Visit
    request: Request
    charge: Charge | None
    prompt: int
    variant: str | None = None
    pieces: int = 0
    first: float | None = None
    usage: Usage | None = None

    def note(self, chunk: Chunk) -> None:
        """Take note of a part of the answer."""
        if self.first is None and _says_something(chunk):
            self.first = time.monotonic()
        if isinstance(usage := chunk.get("usage"), dict):
            read = Usage.from_wire(usage)
            self.usage = read if self.usage is None else self.usage.beside(read)
        if chunk.get("choices"):
            self.pieces += 1

    def model(self, name: str) -> str:
        """What the model behind the engine `name` is called by those who ask for it."""
        return f"{name}:{self.variant}" if self.variant else name

    def used(self) -> Usage:
        """What it took; an estimate where the answer broke off, nothing where none came."""
        return self.usage or (Usage(self.prompt, self.pieces) if self.pieces else NOTHING)


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

_NEWEST = 0.1
"""How much the last answer counts in the running mean of answers' lengths."""


@dataclass(frozen=True, slots=True)
class Books:
    """Where it is written down what was used, the same for all engines."""

    quotas: Quotas
    ledger: Ledger
    metrics: Metrics
    log_prompts: bool = False


class AdmittedEngine:
    """Another engine, whose chats and embeddings are let in one by one."""

    def __init__(self, engine: Engine, name: str, gate: Gate, books: Books) -> None:
        self._engine = engine
        self._name = name
        self._gate = gate
        self._books = books
        self._length = float(FIRST_GUESS)
        self._failed = False
        books.metrics.show_gate(name, gate.scheduler)

    @property
    def busy(self) -> bool:
        """Whether a request is under way or waits."""
        return self._gate.busy or self._engine.busy

    def running(self) -> AbstractAsyncContextManager[None]:
        """Start and stop the engine."""
        return self._engine.running()

    async def ready(self) -> bool:
        """Whether the engine could make a token now; after a failure it has to make one."""
        if not await self._engine.ready():
            return False
        if self._failed:
            self._failed = not await self._makes_a_token()
        return not self._failed

    async def traits(self) -> Traits:
        """Ask the engine what its model can do."""
        return await self._engine.traits()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens: nothing is generated, so nobody waits."""
        return await self._engine.count(body)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an embeddings request when there is a place. Raises ApiError."""
        ask = await self._enter(body)
        try:
            answer = await self._engine.embeddings(body)
            ask.usage = Usage.from_wire(answer.get("usage") or {})
            return answer
        finally:
            self._leave(ask)

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the answer when there is a place. Raises ApiError."""
        ask = await self._enter(body)
        try:
            yields = self._gate.scheduler.yields
            if yields and ask.request.background:
                chat = self._in_gaps(ask, body, session)
            else:
                chat = self._engine.chat(body, session)
            async with aclosing(chat) as chunks:
                async for chunk in chunks:
                    if yields and not ask.pieces:
                        self._gate.spoke(ask.request)
                    ask.note(chunk)
                    yield chunk
        except ApiError as error:
            self._failed |= error.status >= 500 and not isinstance(error, Unsupported)
            raise
        finally:
            self._leave(ask)

    async def _in_gaps(self, ask: Ask, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream an answer whose beginning may have to make room, and then begins again."""
        while True:
            async with aclosing(self._engine.chat(body, session)) as chunks:
                with suppress(StoppedError):
                    first = await self._gate.until_spoken(ask.request, chunks)
                    if first is not None:
                        yield first
                    async for chunk in chunks:
                        yield chunk
                    return
            with self._waiting(ask.visit):
                await self._gate.enter_again(ask.request)

    async def _makes_a_token(self) -> bool:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        try:
            async with asyncio.timeout(PROBE), aclosing(self._engine.chat(body, None)) as chunks:
                return bool((await anext(chunks)).get("choices"))
        except (ApiError, StopAsyncIteration, TimeoutError):
            return False

    async def _enter(self, body: Mapping[str, Any]) -> Ask:
        """Wait for a place. Raises RateLimited or QueueTimeout."""
        who, books = visit(), self._books
        if books.log_prompts:
            log.info("engine.asked", model=self._name, body=body)
        prompt, length = who.size // BYTES_PER_TOKEN, min(self._length, _limit(body))
        charge = books.quotas.charge(who.key, round(prompt + length), time.time(), again=who.asks)
        request = Request(
            who.key.name, prompt + length, who.key.weight, who.background, who.key.parallel
        )
        try:
            with self._waiting(who):
                await self._gate.enter(request)
        except BaseException:
            if charge:
                books.quotas.settle(charge, 0)
            raise
        return Ask(who, request, charge, prompt, body.get("model"))

    @contextmanager
    def _waiting(self, who: Visit) -> Iterator[None]:
        """Count the time of the block as waiting for a place."""
        began = time.monotonic()
        try:
            yield
        finally:
            waited = time.monotonic() - began
            who.waited += waited
            self._books.metrics.waited(who, self._name, waited)

    def _leave(self, ask: Ask) -> None:
        """Give the place back and write down what was used."""
        used, now, books = ask.used(), time.monotonic(), self._books
        self._gate.leave(ask.request, used.prompt - used.cached + used.completion)
        if ask.charge:
            books.quotas.settle(ask.charge, used.prompt + used.completion)
        who = ask.visit
        who.asks += 1
        if used == NOTHING:
            return
        if used.completion:
            self._failed = self._failed and ask.usage is None
            self._length += (used.completion - self._length) * _NEWEST
        books.metrics.used(who, self._name, used, ask.first, now)
        is_first = who.usage is None
        books.ledger.note(who.key.name, ask.model(self._name), used, requests=int(is_first))
        who.usage = used if who.usage is None else who.usage + used


def _limit(body: Mapping[str, Any]) -> float:
    limit = body.get("max_tokens")
    return limit if isinstance(limit, int) else math.inf
