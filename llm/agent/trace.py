"""What a run leaves behind: each step with its time and its cost, and what it has changed.

An effect is written down before and after it happens, under a key made of the run and of the call.
So a run that is done again (a job after a crash, with the same run id) does not repeat what it has
done: it is given the result that was written down. Where only the beginning stands, nobody knows
whether it happened: a tool that heeds the key (`keyed`) is run again, as that changes nothing; any
other is not, and the model is told so. A run that the end of its process broke off is closed as
`interrupted` at the next start. The question of a person is not answered then: they have seen the
bot leave, and ask again if they still want to know.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from llm.agent.guardrails import Key
from llm.agent.outcome import Outcome
from storage.chat_log.pending_event import PendingEvent
from storage.db.errors import StorageError
from storage.runs.runs import Effect, Run, RunEnd, Step
from terrarium.usage import TokenUsage

_log = structlog.get_logger()


class RunStore(Protocol):
    """Where runs are kept, by their keys; `storage.runs.runs.Runs` is one. All raise
    StorageError."""

    async def begin(self, run: Run) -> Sequence[Effect]:
        """Open a run, anew when it was there; its effects so far."""

    async def begin_effect(self, run: str, effect: Effect) -> None:
        """Write down that something is about to happen."""

    async def end_effect(self, run: str, effect: Effect) -> None:
        """Write down what came of it."""

    async def drop_effect(self, run: str, key: str) -> None:
        """It did not happen after all."""

    async def end(self, run: str, ended: RunEnd, steps: Sequence[Step]) -> None:
        """Close a run."""


Beside = Callable[[Coroutine[Any, Any, None]], None]
"""Does something beside the rest, to its end."""


class Trace:
    """The trace of one run, which answers a `line` on its way into the log. Without a ledger, or
    when that cannot be written, it is not kept, and effects that could not be written down do not
    happen."""

    def __init__(
        self,
        run: Run | None = None,
        store: RunStore | None = None,
        beside: Beside | None = None,
        pending_event: PendingEvent | None = None,
    ) -> None:
        self._run = run.key if run else ""
        self._begun = run
        self._store = store
        self._beside = beside
        self._pending_event = pending_event
        self._opened = asyncio.Event()
        self._effects: dict[str, Effect] = {}
        self.steps: list[Step] = []
        self.outcome: Outcome | None = None

    @property
    def changed(self) -> bool:
        """Whether the run has changed anything."""
        return bool(self._effects)

    async def __aenter__(self) -> Self:
        """Open the run, while it goes on already."""
        self._opening = asyncio.create_task(self._begin())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the run by its `outcome`, beside what goes on, or by what ended it."""
        if kind is None and self.outcome:
            closing = self._end(_outcome_name(self.outcome), "", self.outcome)
            if self._beside:
                self._beside(closing)  # whoever asked need not wait for that
            else:
                await closing
        elif kind and issubclass(kind, asyncio.CancelledError):
            await self._end("stopped", "", None)
        else:
            await self._end("failed", kind.__name__ if kind else "", None)

    async def _begin(self) -> None:
        """Never raises: an answer does not depend on its trace."""
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
            self._opened.set()

    def key(self, call: Key) -> str:
        """The key of an effect: that of the run, and of what is called how."""
        return hashlib.sha256("\0".join([self._run, *call]).encode()).hexdigest()[:32]

    async def effect(self, key: str) -> Effect | None:
        """What is known of an effect, also from an earlier attempt at the run."""
        if self._store:
            await self._opened.wait()
        return self._effects.get(key)

    async def begin_effect(self, effect: Effect) -> None:
        """Something is about to happen. Raises StorageError, and then it must not."""
        if self._store:
            await self._opened.wait()
            await self._store.begin_effect(self._run, effect)
        self._effects[effect.key] = effect

    async def end_effect(self, effect: Effect, *, happened: bool) -> None:
        """It has happened, with a result, or it has not. Never raises."""
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
        """The model has answered, with so many calls of tools."""
        cost = (usage.prompt, usage.cached, usage.completion)
        self.steps.append(Step("model", model, True, _since(began), _words(calls), *cost))

    def record_tool_call(self, tool: str, act: str, *, ok: bool, began: float) -> None:
        """A tool was run, or was not."""
        self.steps.append(Step("tool", tool[:64], ok, _since(began), act))

    async def _end(self, how: str, reason: str, outcome: Outcome | None) -> None:
        await self._opening
        if self._store is None:
            return
        await asyncio.sleep(0)  # whoever brings the answer is ready just now
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
    """Seconds, for the times of steps."""
    return time.monotonic()


def _words(calls: int) -> str:
    return f"{calls} call{'s' * (calls > 1)}" if calls else ""


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
