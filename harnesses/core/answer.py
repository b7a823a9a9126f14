"""What a person gets for a question: the turn with its trace, delivered, remembered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from harnesses.core.lane import Lane
from llm.client import Call
from llm.context import Context
from llm.errors import ContextTooLong
from llm.memory.memory import RoomMemory
from llm.message import Message, Status, Usage
from llm.meter import Meter
from llm.outcome import Deferral, Outcome
from llm.trace import Trace
from llm.turn import Turn
from storage.errors import StorageError
from storage.writing import to_its_end

Deliver = Callable[["Answer"], Awaitable[None]]
"""Brings an answer to the person who asked."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person gets. `ok` is False when the text is an apology and nothing was kept; an empty
    text means that there is nothing to say: the question has joined another or was stopped, or the
    model wants to stay silent. `messages` is what memory keeps of it beside the question, `status`
    how it is with the conversation, `deferral` when to look at it again (see `llm.outcome`),
    `afterwards` what is to be done when the person has it."""

    text: str
    ok: bool = True
    usage: Usage = field(default_factory=Usage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    status: Status | None = None
    deferral: Deferral | None = None
    afterwards: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, outcome: Outcome, afterwards: Callable[[], Awaitable[None]]) -> Answer:
        """What came of a turn."""
        return cls(
            outcome.text,
            usage=outcome.usage,
            messages=outcome.messages,
            status=outcome.status,
            deferral=outcome.deferral,
            afterwards=afterwards,
        )


NOTHING = Answer("", ok=False)
"""For a question that has joined another or was stopped."""


async def done(turn: Turn, trace: Trace, context: Context, meter: Meter, reserve: int) -> Outcome:
    """Run a turn, with `reserve` tokens of the window left for its answer. Raises ModelError."""
    async with trace:
        try:
            outcome = await turn.run(
                lambda steps: context.fit(
                    steps,
                    lambda messages: meter.count(turn.call, messages, turn.schemas, reserve),
                    reserve,
                )
            )
        except ContextTooLong:
            meter.forget(turn.call)
            raise
        trace.outcome = outcome
    _tell(turn.call, outcome)
    return outcome


async def answered(
    lane: Lane[Answer],
    work: Callable[[], Awaitable[Answer]],
    context: Context,
    memory: RoomMemory,
    deliver: Deliver | None,
    *,
    keeps: bool,
) -> Answer:
    """What `work` returns, which has its turn in the lane: delivered, and remembered. Then the
    next has its turn."""

    async def said() -> Answer:
        answer = await work()
        await ended(lane, context, answer, deliver, memory)
        return answer

    try:
        return await lane.run(said(), keeps) or NOTHING
    finally:
        lane.leave()


async def ended(
    lane: Lane[Answer],
    context: Context,
    answer: Answer,
    deliver: Deliver | None,
    memory: RoomMemory,
) -> None:
    """Deliver the answer, and remember it meanwhile, also when the tendril stops just then: the
    person has it. Then what comes afterwards."""
    async with asyncio.TaskGroup() as tasks:
        if deliver:  # first, as a person waits for it
            tasks.create_task(_delivered(deliver, answer))
        await to_its_end(asyncio.ensure_future(_kept(lane, context, answer, memory)))
    if answer.afterwards:
        await answer.afterwards()


async def _delivered(deliver: Deliver, answer: Answer) -> None:
    await deliver(answer)


async def _kept(lane: Lane[Answer], context: Context, answer: Answer, memory: RoomMemory) -> None:
    """Remember the question and its answer, unless there is none or the lane discards it."""
    try:
        async with lane.memory:
            if answer.ok and not lane.discarded:
                await context.remember(answer.messages)
                await memory.after_turn()
    except StorageError as error:  # the person still gets the answer
        _log.error("turn.not_kept", error=str(error))


def _tell(call: Call, outcome: Outcome) -> None:
    _log.info(
        "turn.done",
        conversation=call.session,
        request=call.id,
        iterations=outcome.iterations,
        forced=outcome.forced,
        prompt_tokens=outcome.usage.prompt,
        cached_tokens=outcome.usage.cached,
        completion_tokens=outcome.usage.completion,
    )
