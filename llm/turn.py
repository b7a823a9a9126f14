"""The turn: think, act, observe, until there is an answer. It always ends in one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from llm.client import AgentClient, Call, OnText, ToolChoice
from llm.guardrails import Guardrails, Verdict
from llm.limits import Limits
from llm.message import Message, Reply, ToolCall, Usage
from llm.settings import AgentSettings
from llm.tools import Toolbox, refused

Fit = Callable[[Sequence[Message]], Awaitable[list[Message]]]
"""Given the steps of the run so far, the whole prompt, fitted to the model's window."""

Joining = Callable[[], Awaitable[Sequence[Message]]]
"""What people have added to their question since it was last called."""

SPEECHLESS = "I have no good answer to that."

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended: the answer, the messages that memory keeps, what it cost.

    `forced` tells that the model was made to answer without tools.
    """

    text: str
    messages: tuple[Message, ...]
    usage: Usage
    iterations: int
    forced: bool


class Turn:
    """One run of the model with tools, within the limits of the settings."""

    def __init__(
        self,
        client: AgentClient,
        settings: AgentSettings,
        toolbox: Toolbox,
        call: Call,
        on_text: OnText | None = None,
        joining: Joining | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._toolbox = toolbox
        self._call = call
        self._on_text = on_text
        self._joining = joining
        self._limits = Limits.of(settings)
        self._guard = Guardrails(self._limits, toolbox.traits)
        self._steps: list[Message] = []
        self._usage = Usage()
        self._iterations = 0

    async def run(self, fit: Fit) -> Outcome:
        """Go on until the model answers. Raises ModelError when it cannot be asked."""
        deadline = asyncio.get_running_loop().time() + self._settings.timeout
        while self._may_go_on(deadline):
            reply = await self._ask(fit, "auto")
            if not reply.calls:
                break
            self._steps.append(reply.message())
            verdicts = self._guard.judge(reply.calls)
            for call, verdict in zip(reply.calls, verdicts, strict=True):
                self._steps.append(await self._result(call, verdict, deadline))
        else:
            return await self._forced(fit)
        return self._ended(reply, forced=False) if reply.text else await self._forced(fit)

    def _may_go_on(self, deadline: float) -> bool:
        in_time = asyncio.get_running_loop().time() < deadline
        last = self._limits.iterations - 1  # one is kept for the forced answer
        return in_time and self._iterations < last and not self._guard.exhausted

    async def _ask(self, fit: Fit, choice: ToolChoice) -> Reply:
        self._iterations += 1
        self._steps += await self._joining() if self._joining else ()
        if self._on_text and self._iterations > 1:
            await self._on_text("")
        reply = await self._client.chat(
            await fit(self._steps),
            self._call,
            tools=self._toolbox.schemas(),
            tool_choice=choice,
            on_text=self._on_text,
        )
        self._usage += reply.usage
        return reply

    async def _result(self, call: ToolCall, verdict: Verdict, deadline: float) -> Message:
        """Run a call that the guard rails let pass; its result, or why it did not run."""
        why = verdict.words or self._guard.weary(call.name)
        _log.info("turn.tool", tool=call.name, act=verdict.act, stopped=bool(why))
        if why:
            result = refused(call.name, f"not run: {why}")
        else:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            own = self._toolbox.traits(call.name).timeout or self._settings.tool_timeout
            result = await self._toolbox.call(call.name, call.arguments, min(own, left))
            self._guard.ran(call.name, ok=result.ok)
        return {"role": "tool", "tool_call_id": call.id, "content": result.text}

    async def _forced(self, fit: Fit) -> Outcome:
        """One last call without tools: the person gets an answer, whatever happened."""
        return self._ended(await self._ask(fit, "none"), forced=True)

    def _ended(self, reply: Reply, *, forced: bool) -> Outcome:
        final = Reply(reply.text or SPEECHLESS, reply.thought)
        messages = (*self._steps, final.message())
        return Outcome(final.text, messages, self._usage, self._iterations, forced)
