"""The outcome of a run, and its trace: its steps with their times and costs, and its effects.

A trace has the sizes of what the model was given, and none of the words.

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
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from time import monotonic
from typing import Any, Self

import structlog

from llm.messages.message import (
    CHARACTERS_PER_TOKEN,
    EARLIER,
    Message,
    ModelReply,
    ShownText,
    quotes_of,
)
from storage.db.errors import StorageError
from storage.runs.runs import Effect, PartSize, Run, RunEnd, Runs, Step
from storage.usage.usage import TokenUsage
from terrarium.clock import Clock


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run: the answer `text` (empty if the model stays silent), the `messages` that
    memory keeps, and the token usage.

    `iterations` and `calls` count the calls of the model and of tools. `forced`: the model had to
    answer without tools. `cut`: the answer lacks its end, and says so. `shown` are quoted lines.
    """

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage
    iterations: int
    forced: bool
    calls: int = 0
    cut: bool = False
    shown: tuple[ShownText, ...] = ()

    @classmethod
    def without_model(cls, text: str) -> Outcome:
        """Return the outcome of a question that was settled without asking the model."""
        return cls(text, ({"role": "assistant", "content": text},), TokenUsage(), 0, forced=False)

    def text_beside(self) -> str:
        """Return what the model wrote besides answers: its thoughts, and the arguments of calls."""
        texts: list[str] = []
        for message in self.messages:
            if message["role"] == "assistant":
                texts.append(message.get("reasoning_content") or "")
                texts += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
        return "\n".join(texts)

    def with_text(self, text: str) -> Outcome:
        """Return the outcome with another answer."""
        return replace(self.with_last(content=text), text=text)

    def with_last(self, **fields: Any) -> Outcome:
        """Return the outcome with other fields in its last message, the answer."""
        return replace(self, messages=(*self.messages[:-1], self.messages[-1] | fields))


_EXPIRY_INTERVAL = 3600.0  # seconds

_log = structlog.get_logger()


Key = tuple[str, str]
"""A tool call: the name of the tool, and the arguments as normalised by `canonical`."""


class Trace:
    """The trace of one run, by its key `run`; `question_event_id` waits for the question's event in
    the log, and returns its id. The run took the seconds `before` already.

    It is best-effort: without a store, or while that cannot be written, steps are lost. But an
    effect whose beginning could not be recorded must not happen.
    """

    def __init__(
        self,
        run: Run | None = None,
        store: Runs | None = None,
        question_event_id: Callable[[], Awaitable[int]] | None = None,
        before: float = 0.0,
    ) -> None:
        self.run = run.key if run else ""
        self._begun = run
        self._store = store
        self._question_event_id = question_event_id
        self._opened = asyncio.Event()
        self.began = monotonic() - before
        self._effects: dict[str, Effect] = {}
        self.steps: list[Step] = []
        self.outcome: Outcome | None = None

    @property
    def has_effects(self) -> bool:
        """True if the run, or an earlier attempt at it, has had an effect."""
        return bool(self._effects)

    def add(
        self, kind: str, name: str, began: float | None = None, *, ok: bool = True, **more: Any
    ) -> None:
        """Add a step, which took the time since `began` (a time of `monotonic`; None: no time).

        `more` are further fields of `Step`.
        """
        now = monotonic()
        begun = now if began is None else began
        took, after = round((now - begun) * 1000), round((begun - self.began) * 1000)
        self.steps.append(Step(kind, name, ok, took, began=max(0, after), **more))

    async def __aenter__(self) -> Self:
        """Open the run in the background, so that the first model call does not wait for it."""

        async def begin() -> None:
            try:
                if self._store and self._begun:
                    run = self._begun
                    if self._question_event_id:
                        run = replace(run, question_event_id=await self._question_event_id())
                    effects = await self._store.begin(run)
                    self._effects = {effect.key: effect for effect in effects}
            except StorageError as error:  # an answer does not depend on its trace
                _log.error("run.not_kept", error=str(error))
            finally:
                self._opened.set()  # in any case, or calls with an effect would wait forever

        self._opening = asyncio.create_task(begin())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the run as failed or stopped; one with an `outcome` is for `close`."""
        if kind and issubclass(kind, asyncio.CancelledError):
            await self._end("stopped", "", None)
        elif kind or not self.outcome:
            await self._end("failed", kind.__name__ if kind else "", None)

    async def close(self) -> None:
        """Close the run with its `outcome`, once the answer is delivered."""
        assert self.outcome
        await self._end("answered" if self.outcome.text else "silent", "", self.outcome)

    def key(self, call: Key) -> str:
        """Return the key of an effect, derived from the run, the tool and its arguments."""
        return hashlib.sha256("\0".join([self.run, *call]).encode()).hexdigest()[:32]

    async def effect(self, key: str) -> Effect | None:
        """Return the effect that this run or an earlier attempt recorded under `key`, else None."""
        if self._store:
            await self._opened.wait()  # only then the effects of an earlier attempt are known
        return self._effects.get(key)

    async def begin_effect(self, effect: Effect) -> None:
        """Record that an effect is to happen. If it raises StorageError, it must not happen."""
        if self._store:
            await self._opened.wait()
            await self._store.begin_effect(self.run, effect)
        self._effects[effect.key] = effect

    async def end_effect(self, effect: Effect, *, happened: bool) -> None:
        """Record the result of an effect, or that it did not happen. Never raises StorageError."""
        if happened:
            self._effects[effect.key] = effect
        else:
            self._effects.pop(effect.key, None)
        if self._store:
            store, run = self._store, self.run
            await self._persist(
                store.end_effect(run, effect) if happened else store.drop_effect(run, effect.key)
            )

    def add_model_call(
        self, model: str, reply: ModelReply, began: float, parts: Sequence[PartSize]
    ) -> None:
        """Add a step for a reply of the model to a prompt of these parts."""
        usage, calls = reply.usage, len(reply.calls)
        estimated = sum(part.tokens for part in parts)
        if usage.prompt and estimated:
            # Scaled to the tokens of the prompt. The ends of the parts are rounded, not the parts,
            # so that their sum is exact.
            counts = accumulate(part.tokens for part in parts)
            ends = [0, *(count * usage.prompt // estimated for count in counts)]
            parts = [
                replace(part, tokens=end - begin)
                for part, (begin, end) in zip(parts, pairwise(ends), strict=True)
            ]
        self.add(
            "model",
            model,
            began,
            verdict=f"{calls} call{'s' * (calls > 1)}" if calls else "",
            prompt=usage.prompt,
            cached=usage.cached,
            completion=usage.completion,
            finish_reason=reply.finish_reason,
            filters=reply.filters,
            parts=tuple(parts),
        )

    async def _end(self, how: str, reason: str, outcome: Outcome | None) -> None:
        await self._opening  # a row has to exist before it can be closed
        if self._store is None:
            return
        ended = RunEnd(
            datetime.now(UTC),
            how,
            reason,
            sum(step.prompt for step in self.steps),
            sum(step.cached for step in self.steps),
            sum(step.completion for step in self.steps),
            sum(step.kind == "model" for step in self.steps),
            forced=outcome.forced if outcome else False,
            cut=outcome.cut if outcome else False,
            quotes=quotes_of(*outcome.messages) if outcome else frozenset(),
        )
        await self._persist(self._store.end(self.run, ended, self.steps))

    async def _persist(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except StorageError as error:
            _log.error("run.not_kept", error=str(error))


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


_LOG, _MEMORY = "channel log", "memory"
_PART_NAMES = {
    "irc_logs": _LOG,
    EARLIER: "older lines",
    **dict.fromkeys(
        ("facts", "own_facts", "known_elsewhere", "notes", "summary", "episodes"), _MEMORY
    ),
}
"""The names of the parts of a prompt between our tags; others are called by their tag."""

_TAGGED = re.compile(r"^<(\w+)>\n(.*?)\n</\1>$", re.MULTILINE | re.DOTALL)


def prompt_parts(
    messages: Sequence[Message], steps: int, tools: Sequence[dict[str, Any]]
) -> list[PartSize]:
    """Return the parts of a prompt in the order in which the model reads them, with estimated
    tokens. The last `steps` messages are those of the run itself."""
    parts = [PartSize("tools", len(json.dumps(tools)) // CHARACTERS_PER_TOKEN)] if tools else []

    def add(name: str, tokens: int, lines: int = 0) -> None:
        if parts and parts[-1].name == name:
            last = parts.pop()
            tokens, lines = last.tokens + tokens, last.lines + lines
        parts.append(PartSize(name, tokens, lines))

    question = len(messages) - steps - 1
    while question > 0 and messages[question]["role"] != "user":
        question -= 1
    for position, message in enumerate(messages):
        name = "question" if position == question else "earlier turns"
        if message["role"] == "system":
            name = "persona"
        elif position > question:
            name = "tool calls and results"
        text, is_ours = message["content"] or "", message["role"] in ("system", "user")
        # Of our own text by turns: what is not between tags, a tag, what is in it.
        texts = _TAGGED.split(text) if is_ours else [text]
        texts[-1] += "".join(json.dumps(call["function"]) for call in message.get("tool_calls", ()))
        for place, part in enumerate(map(str.strip, texts)):
            if part and place % 3 != 1:
                tag = texts[place - 1] if place % 3 else ""
                tokens = -(-len(part) // CHARACTERS_PER_TOKEN)
                add(_PART_NAMES.get(tag, tag) or name, tokens, part.count("\n") + 1)
        if image := message.get("image"):
            add("image", image.tokens)
    return parts
