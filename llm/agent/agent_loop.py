"""The agent loop: ask the model, run its tools, ask again, until there is an answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import structlog
from pydantic import Field

from llm.agent.tool_executor import Guardrails, RunBudget, RunLimits, ToolExecutor
from llm.agent.trace import Deferral, Outcome, Trace, now
from llm.client.client import AgentClient, OnText, RequestOptions, ToolChoice
from llm.messages.errors import ModelError
from llm.messages.message import Message, ModelReply
from llm.tools.toolbox import Toolbox, tool
from terrarium.usage import TokenUsage

Fit = Callable[[Sequence[Message]], Awaitable[list[Message]]]
"""Makes the whole prompt of the steps so far, fitted to the model's window."""

TakeFollowups = Callable[[], Awaitable[Sequence[Message]]]
"""Returns what people have added to their question since it was last called."""

SPEECHLESS = "I have no good answer to that."

_IN_WORDS: Message = {"role": "user", "content": "Answer in plain words, without calling anything."}
"""The message after an answer that was only the call of a tool that does not exist."""

_DOUBTFUL_FROM = 4  # iterations, from which on a forced answer is doubtful

# Of a run with more than ten steps, the first two and the last five are shown as they are.
_LONG = 10
_FIRST, _LAST = 2, 5

_log = structlog.get_logger()


Reason = Annotated[str, Field(max_length=300, description="why, in a few words")]


class EscalateTool:
    """A tool that hands the run to a better model; it is offered where there is one."""

    def __init__(self) -> None:
        self.is_requested = False

    @tool(quiet=True)
    async def escalate(self, reason: Reason) -> str:
        """Hand a question that is too hard for you to a model that knows more."""
        self.is_requested = True
        return f"handed on: {reason}"


class DeferTool:
    """A tool that ends a run without an answer; it is offered where nobody waits for one."""

    def __init__(self) -> None:
        self.deferral: Deferral | None = None

    @tool(quiet=True)
    async def defer(
        self,
        signal: Annotated[str, Field(max_length=64, description="what it is about")],
        hours: Annotated[float, Field(gt=0, le=24, description="how long to wait")],
        reason: Reason,
    ) -> str:
        """Say nothing now, and look at it again later, or earlier when it has grown."""
        self.deferral = Deferral(signal, hours, reason)
        return "deferred"


@dataclass(frozen=True, slots=True)
class LoopCallbacks:
    """The connection of a run with the people who wait: `on_text` is given each piece of the
    answer, "" where it begins again."""

    on_text: OnText | None = None
    take_followups: TakeFollowups | None = None


NO_CALLBACKS = LoopCallbacks()


class AgentLoop:
    """One run of the model with tools, within `limits`.

    `options` is what goes with its requests now; where there is a `smart` model, the run may hand
    over to that. Each step is recorded in `trace`.
    """

    def __init__(
        self,
        client: AgentClient,
        toolbox: Toolbox,
        options: RequestOptions,
        limits: RunLimits,
        *,
        callbacks: LoopCallbacks = NO_CALLBACKS,
        smart: str = "",
        trace: Trace | None = None,
    ) -> None:
        self.options = options
        self._client = client
        self._callbacks = callbacks
        self._smart = smart if smart != options.model else ""
        self._limits = limits
        self._unasked = limits.is_unasked
        self._trace = trace or Trace()
        self._escalation, self._deferring = EscalateTool(), DeferTool()
        offered = [self._escalation] if self._smart else []
        full = toolbox.plus(*offered, *([self._deferring] if self._unasked else []))
        self._tools = toolbox
        self._guard = Guardrails(self._limits, full.options)
        self._execution = ToolExecutor(
            full, self._guard, self._trace, self._seconds_left, sees=options.sees
        )
        self._steps: list[Message] = []
        self._usage = TokenUsage()
        self._iterations = 0
        self._deadline = 0.0

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """Return the tools that the model is offered now, in OpenAI's format."""
        return self._execution.toolbox.schemas()

    @property
    def budget(self) -> RunBudget:
        """The part of the limits that tools may still use; one call of the model is kept for the
        answer."""
        iterations = self._limits.iterations - self._iterations - 1
        return RunBudget(max(0, iterations), self._guard.calls_left, max(0.0, self._seconds_left()))

    def charge(self, iterations: int, calls: int) -> None:
        """Count what another tendril has used on behalf of this run."""
        self._iterations += iterations
        self._guard.charge(calls)

    async def run(self, fit: Fit) -> Outcome:
        """Run until the model answers. Raises ModelError when it cannot be asked."""
        self._deadline = asyncio.get_running_loop().time() + self._limits.seconds
        while self._may_go_on():
            prompt, reply = await self._ask(fit, "auto")
            if not reply.calls:
                return await self._accept(fit, reply)
            self._steps.append(reply.message())
            self._steps += await self._execution.results(reply.calls, prompt)
            if self._deferring.deferral:
                return self._outcome(ModelReply(silent=True), forced=False)
            if self._escalation.is_requested:
                self._switch_model()
        return await self._force_answer(fit)

    def _seconds_left(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()

    def _may_go_on(self) -> bool:
        last = self._limits.iterations - 1  # one is kept for the forced answer
        return self._seconds_left() > 0 and self._iterations < last and not self._guard.exhausted

    async def _ask(
        self, fit: Fit, choice: ToolChoice, *, shown: bool = True
    ) -> tuple[list[Message], ModelReply]:
        """Ask the model; return the prompt and the reply."""
        self._iterations += 1
        if self._iterations > 1 and self._callbacks.take_followups:
            self._steps += await self._callbacks.take_followups()
        on_text = self._callbacks.on_text if shown else None
        if on_text and self._iterations > 1:
            await on_text("")
        prompt = await fit(compact_steps(self._steps))
        began = now()
        reply = await self._client.chat(
            prompt, self.options, tools=self.schemas, tool_choice=choice, on_text=on_text
        )
        self._usage += reply.usage
        model = self._client.model_of(self.options)
        self._trace.record_model_call(model, reply.usage, began, len(reply.calls))
        return prompt, reply

    async def _accept(self, fit: Fit, reply: ModelReply) -> Outcome:
        """Take an answer without calls; ask once more for an empty one where somebody waits."""
        if reply.text or reply.silent or (self._unasked and not reply.is_call):
            return self._outcome(reply, forced=False)
        if reply.is_call:
            return await self._force_answer(lambda steps: fit([*steps, _IN_WORDS]))
        return await self._force_answer(fit)

    async def _force_answer(self, fit: Fit) -> Outcome:
        """Ask a last time, without tools, so that the person gets an answer in any case.

        A doubtful answer, of a run that changed nothing, is asked for again from the `smart`
        model; so the first one is not shown while it is written.
        """
        again = bool(self._smart) and not self._trace.changed and self._is_doubtful()
        _, reply = await self._ask(fit, "none", shown=not again)
        if again and self._seconds_left() > 0:
            reply = await self._escalate(fit, reply)
        return self._outcome(reply, forced=True)

    def _is_doubtful(self) -> bool:
        """Return if a forced answer now comes after too many iterations."""
        return self._iterations + 1 >= _DOUBTFUL_FROM

    async def _escalate(self, fit: Fit, first: ModelReply) -> ModelReply:
        """Return the answer of the `smart` model; `first` when it has none."""
        self._switch_model()
        try:
            _, reply = await self._ask(fit, "none")
        except ModelError as error:
            _log.warning("turn.no_second_answer", error=str(error))
            return first
        return reply if reply.text or reply.silent else first

    def _switch_model(self) -> None:
        """Let the `smart` model go on, with the results so far."""
        self._escalation.is_requested = False
        self.options = replace(self.options, model=self._smart, sees=False)
        self._smart, self._steps = "", _without_images(self._steps)
        kept = [self._deferring] if self._unasked else []
        self._execution.toolbox = self._tools.plus(*kept)
        self._execution.restart()

    def _outcome(self, reply: ModelReply, *, forced: bool) -> Outcome:
        text = reply.text or ("" if reply.silent or self._unasked else SPEECHLESS)
        final = ModelReply(text, reply.thought).message() | {"content": text}
        return Outcome(
            text,
            (*_without_images(self._steps), final),
            self._usage,
            self._iterations,
            forced,
            reply.status,
            self._deferring.deferral,
            self.options.model,
            self._limits.calls - self._guard.calls_left,
        )


def _without_images(steps: Sequence[Message]) -> list[Message]:
    return [step for step in steps if "image" not in step]


def compact_steps(steps: Sequence[Message]) -> list[Message]:
    """Shorten the messages of a long run: of more than ten steps, each a reply with its results,
    those in the middle become counts by tool. What people added meanwhile stays."""
    starts = [at for at, message in enumerate(steps) if message["role"] == "assistant"]
    if len(starts) <= _LONG:
        return list(steps)
    begin, end = starts[_FIRST], starts[-_LAST]
    middle = steps[begin:end]
    said = [message for message in middle if message["role"] == "user"]
    note: Message = {"role": "user", "content": _counts(middle)}
    return [*steps[:begin], note, *said, *steps[end:]]


def _counts(middle: Iterable[Message]) -> str:
    """Render how often each tool has worked and failed."""
    tools: dict[str, str] = {}
    worked: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for message in middle:
        for call in message.get("tool_calls", ()):
            tools[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            count = failed if message.get("failed") else worked
            count[tools[message["tool_call_id"]]] += 1
    lines = [
        f"{name}: {worked[name]} worked, {failed[name]} failed"
        for name in dict.fromkeys(tools.values())
    ]
    return "\n".join(["<steps>", "steps between, by tool:", *lines, "</steps>"])
