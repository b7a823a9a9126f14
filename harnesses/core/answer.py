"""What a person gets for a question, and how a turn ends: delivered, and remembered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from harnesses.core.lane import Lane
from llm.context import Context
from llm.memory.memory import RoomMemory
from llm.message import Message, Usage
from storage.errors import StorageError

Deliver = Callable[["Answer"], Awaitable[None]]
"""Brings an answer to the person who asked."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person gets. `ok` is False when the text is an apology and nothing was kept; an empty
    text means that there is nothing to say, as the question has joined another or was stopped.
    `messages` is what memory keeps of it beside the question, `afterwards` what is to be done when
    the person has it."""

    text: str
    ok: bool = True
    usage: Usage = field(default_factory=Usage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    afterwards: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)


async def ended(
    lane: Lane[Answer],
    context: Context,
    answer: Answer,
    deliver: Deliver | None,
    memory: RoomMemory,
) -> None:
    """Deliver the answer, and remember it meanwhile; then what comes afterwards."""
    async with asyncio.TaskGroup() as tasks:
        if deliver:  # first, as a person waits for it
            tasks.create_task(_delivered(deliver, answer))
        tasks.create_task(_kept(lane, context, answer, memory))
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
