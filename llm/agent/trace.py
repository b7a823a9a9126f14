"""The outcome of a run, and its trace: its steps with their times and costs, and its effects.

An effect is recorded before and after it happens, under a key derived from the run and the call. A
run that is repeated under the same run id (a job after a crash) therefore does not repeat its
effects, but is given the stored results. If only the beginning is stored, the effect may or may not
have happened: a tool that is idempotent by its key (`keyed`) is run again; any other is not, and
the model is told so.

A run that ended with its process is closed as `interrupted` at the next start. A person's question
is not retried then: they saw the bot leave, and can ask again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from llm.messages.message import Message, Status
from storage.chat_log.event import PendingEvent
from storage.db.errors import StorageError
from storage.runs.runs import Effect, Run, RunEnd, Runs, Step
from terrarium.clock import Clock
from terrarium.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class Deferral:
    """The model's request to look at a `signal` again after some `hours`, with its `reason`."""

    signal: str
    hours: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the answer `text` (empty if the model stays silent), the `messages` that
    memory keeps, and the token usage.

    `iterations` and `calls` count the calls of the model and of tools. `forced`: the model had to
    answer without tools. `status` is the state of the conversation, `deferral` the request to look
    at it later, `model` the model of the last request ("" for the configured one).
    """

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage
    iterations: int
    forced: bool
    status: Status | None = None
    deferral: Deferral | None = None
    model: str = ""
    calls: int = 0

    @classmethod
    def without_model(cls, text: str) -> Outcome:
        """Return the outcome of a question that was settled without asking the model."""
        return cls(text, ({"role": "assistant", "content": text},), TokenUsage(), 0, forced=False)

    def ending_with(self, lines: Sequence[str]) -> Outcome:
        """Return the outcome with `lines` appended to its text; unchanged if it has no text."""
        if not self.text:
            return self
        text = "\n".join([self.text, *lines])
        last = self.messages[-1] | {"content": text}
        return replace(self, text=text, messages=(*self.messages[:-1], last))


_EXPIRY_INTERVAL = 3600.0  # seconds

_log = structlog.get_logger()


Key = tuple[str, str]
"""A tool call: the name of the tool, and the arguments as normalised by `canonical`."""


class RunStore(Protocol):
    """A store of runs by key, as implemented by `storage.runs.runs.Runs`. All methods raise
    StorageError."""

    async def begin(self, run: Run) -> Sequence[Effect]:
        """Open a run, or reopen it; return the effects recorded so far."""

    async def begin_effect(self, run: str, effect: Effect) -> None:
        """Record that an effect is about to happen."""

    async def end_effect(self, run: str, effect: Effect) -> None:
        """Record the result of an effect."""

    async def drop_effect(self, run: str, key: str) -> None:
        """Remove the record of an effect that did not happen after all."""

    async def end(self, run: str, ended: RunEnd, steps: Sequence[Step]) -> None:
        """Close a run."""


Spawn = Callable[[Coroutine[Any, Any, None]], None]
"""Starts a coroutine in the background; it runs to completion."""


class Trace:
    """The trace of one run, which answers the question in `pending_event`.

    It is best-effort: without a store, or while that cannot be written, steps are lost. But an
    effect whose beginning could not be recorded must not happen.
    """

    def __init__(
        self,
        run: Run | None = None,
        store: RunStore | None = None,
        spawn: Spawn | None = None,
        pending_event: PendingEvent | None = None,
    ) -> None:
        self._run = run.key if run else ""
        self._begun = run
        self._store = store
        self._spawn = spawn
        self._pending_event = pending_event
        self._opened = asyncio.Event()
        self._effects: dict[str, Effect] = {}
        self.steps: list[Step] = []
        self.outcome: Outcome | None = None

    @property
    def run(self) -> str:
        """The key of the run."""
        return self._run

    @property
    def changed(self) -> bool:
        """True if the run, or an earlier attempt at it, has had an effect."""
        return bool(self._effects)

    def add_failed_request(self, model: str, reason: str, began: float) -> None:
        """Add a step for a model that could not be asked; `began` is a time from `now()`."""
        ms = round((now() - began) * 1000)
        self.steps.append(Step("model", model, ok=False, ms=ms, verdict=reason))

    async def __aenter__(self) -> Self:
        """Open the run in the background, so that the first model call does not wait for it."""
        self._opening = asyncio.create_task(self._begin())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the run: with its `outcome`, in the background, or as failed or stopped."""
        if kind is None and self.outcome:
            closing = self._end(_outcome_name(self.outcome), "", self.outcome)
            if self._spawn:
                self._spawn(closing)  # the answer need not wait for that
            else:
                await closing
        elif kind and issubclass(kind, asyncio.CancelledError):
            await self._end("stopped", "", None)
        else:
            await self._end("failed", kind.__name__ if kind else "", None)

    async def _begin(self) -> None:
        """Open the run. Never raises StorageError: an answer does not depend on its trace."""
        try:
            if self._store and self._begun:
                anchor = await self._pending_event.wait_visible() if self._pending_event else 0
                run = replace(
                    self._begun, question_event_id=anchor or self._begun.question_event_id
                )
                effects = await self._store.begin(run)
                self._effects = {effect.key: effect for effect in effects}
        except StorageError as error:
            _log.error("run.not_kept", error=str(error))
        finally:
            self._opened.set()  # in any case, or calls with an effect would wait forever

    def key(self, call: Key) -> str:
        """Return the key of an effect, derived from the run, the tool and its arguments."""
        return hashlib.sha256("\0".join([self._run, *call]).encode()).hexdigest()[:32]

    async def effect(self, key: str) -> Effect | None:
        """Return the effect that this run or an earlier attempt recorded under `key`, else None."""
        if self._store:
            await self._opened.wait()  # only then the effects of an earlier attempt are known
        return self._effects.get(key)

    async def begin_effect(self, effect: Effect) -> None:
        """Record that an effect is about to happen. If it raises StorageError, the effect must
        not happen."""
        if self._store:
            await self._opened.wait()
            await self._store.begin_effect(self._run, effect)
        self._effects[effect.key] = effect

    async def end_effect(self, effect: Effect, *, happened: bool) -> None:
        """Record the result of an effect, or that it did not happen. Never raises StorageError."""
        if happened:
            self._effects[effect.key] = effect
        else:
            self._effects.pop(effect.key, None)
        if self._store:
            store, run = self._store, self._run
            await self._persist(
                store.end_effect(run, effect) if happened else store.drop_effect(run, effect.key)
            )

    def record_model_call(self, model: str, usage: TokenUsage, began: float, calls: int) -> None:
        """Record a reply of the model and the number of its tool `calls`."""
        cost = (usage.prompt, usage.cached, usage.completion)
        self.steps.append(Step("model", model, True, _since(began), _words(calls), *cost))

    def record_tool_call(self, tool: str, act: str, *, ok: bool, began: float) -> None:
        """Record a tool call, whether it ran or was refused (`act`)."""
        self.steps.append(Step("tool", tool[:64], ok, _since(began), act))

    async def _end(self, how: str, reason: str, outcome: Outcome | None) -> None:
        await self._opening  # a row has to exist before it can be closed
        if self._store is None:
            return
        await asyncio.sleep(0)  # let the task that delivers the answer run first
        usage = self._total_usage()
        ended = RunEnd(
            datetime.now(UTC),
            how,
            reason,
            usage.prompt,
            usage.cached,
            usage.completion,
            sum(step.kind == "model" for step in self.steps),
            forced=outcome.forced if outcome else False,
            answer=outcome.text if outcome else "",
        )
        await self._persist(self._store.end(self._run, ended, self.steps))

    def _total_usage(self) -> TokenUsage:
        usage = TokenUsage()
        for step in self.steps:
            usage += TokenUsage(step.prompt, step.completion, step.cached)
        return usage

    async def _persist(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except StorageError as error:
            _log.error("run.not_kept", error=str(error))


def _outcome_name(outcome: Outcome) -> str:
    if outcome.deferral:
        return "deferred"
    return "answered" if outcome.text else "silent"


def now() -> float:
    """Return the monotonic clock in seconds, by which steps are timed."""
    return time.monotonic()


def _words(calls: int) -> str:
    return f"{calls} call{'s' * (calls > 1)}" if calls else ""


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


async def expire_runs(runs: Runs, days: Callable[[], int], clock: Clock) -> None:
    """Delete traces older than `days` now and every hour, until cancelled."""
    while True:
        try:
            await runs.expire(clock.now(), days())
        except StorageError as error:  # another hour is soon enough
            _log.error("runs.not_expired", error=str(error))
        await asyncio.sleep(_EXPIRY_INTERVAL)


def canonical(arguments: str) -> str:
    """Return JSON arguments in a canonical spelling; unchanged if they are not valid JSON."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
