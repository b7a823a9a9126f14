"""What a person gets for a question: the answer delivered, and remembered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from harnesses.core.tendril.conversation_queue import ConversationQueue
from harnesses.core.tendril.turn_request import Deliver
from llm.agent.outcome import Deferral, Outcome
from llm.memory.room import RoomMemory
from llm.messages.message import Message, Status
from storage.db.errors import StorageError
from storage.db.transactions import await_shielded
from terrarium.usage import TokenUsage

_log = structlog.get_logger()

Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a person gets. `ok` is False when the text is an apology and nothing was kept; an empty
    text means that there is nothing to say: the question has joined another or was stopped, or the
    model wants to stay silent. `messages` is what memory keeps of it beside the question, by
    `remember`; `status` how it is with the conversation, `deferral` when to look at it again (see
    `llm.agent.outcome`), `on_delivered` what is to be done when the person has it."""

    text: str
    ok: bool = True
    usage: TokenUsage = field(default_factory=TokenUsage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    status: Status | None = None
    deferral: Deferral | None = None
    remember: Act | None = field(default=None, compare=False)
    on_delivered: Act | None = field(default=None, compare=False)

    @classmethod
    def from_outcome(cls, outcome: Outcome, remember: Act, afterwards: Act) -> TurnResult:
        """Make the answer of a turn that ended in `outcome`."""
        return cls(
            outcome.text,
            usage=outcome.usage,
            messages=outcome.messages,
            status=outcome.status,
            deferral=outcome.deferral,
            remember=remember,
            on_delivered=afterwards,
        )


NO_REPLY = TurnResult("", ok=False)
"""For a question that has joined another or was stopped."""


async def run_turn(
    queue: ConversationQueue[TurnResult],
    work: Callable[[], Awaitable[TurnResult]],
    memory: RoomMemory,
    deliver: Deliver | None,
    *,
    keeps: bool,
) -> TurnResult:
    """Run `work`, which has its turn in the lane; deliver and remember its answer. Then the next
    question has its turn."""

    async def execute() -> TurnResult:
        result = await work()
        await _finish(queue, result, deliver, memory)
        return result

    try:
        return await queue.run(execute(), keeps) or NO_REPLY
    finally:
        queue.leave()


async def _finish(
    queue: ConversationQueue[TurnResult],
    result: TurnResult,
    deliver: Deliver | None,
    memory: RoomMemory,
) -> None:
    """Deliver the answer, and remember it meanwhile, also when the tendril stops just then: the
    person has it. Then do what comes afterwards."""
    async with asyncio.TaskGroup() as tasks:
        if deliver:  # first, as a person waits for it
            tasks.create_task(_deliver(deliver, result))
        await await_shielded(asyncio.ensure_future(_save(queue, result, memory)))
    if result.on_delivered:
        await result.on_delivered()


async def _deliver(deliver: Deliver, result: TurnResult) -> None:
    await deliver(result)


async def _save(
    queue: ConversationQueue[TurnResult], result: TurnResult, memory: RoomMemory
) -> None:
    """Remember the question and its answer, unless there is none or the lane discards it."""
    try:
        async with queue.memory:
            if result.ok and result.remember and not queue.ephemeral:
                await result.remember()
                await memory.after_turn()
    except StorageError as error:  # the person still gets the answer
        _log.error("turn.not_kept", error=str(error))
