"""The base class of every tendril: a question has its turn, and a person gets the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from harnesses.core.services.peers import PeerAnswer, PeerQuestion
from harnesses.core.tendril.process import TendrilProcess
from harnesses.core.tendril.responder import Responder
from harnesses.core.tendril.turn import (
    NO_REPLY,
    ConversationQueue,
    ConversationQueues,
    TurnRequest,
    TurnResult,
)
from llm.memory.room import RoomMemory
from llm.messages.errors import ModelError
from llm.messages.message import Question
from storage.db.errors import StorageError
from storage.memory.conversations import PromptWindow
from terrarium.cancellation import await_shielded
from terrarium.clock import Clock
from terrarium.config import Config

FAILED = "Something went wrong on my side; it has been noted. Please try again."
NO_DISK = "I cannot use my files at the moment (the disk may be full); please tell whoever runs me."

COMPACTED = 4
"""Turns that are shown to the model after a conversation was made compact."""

_log = structlog.get_logger()


class Tendril(TendrilProcess):
    """A tendril: its `name`, a `persona.md` beside its module, `@tool` methods, and `serve`.

    `serve` turns the events of its medium into `await self.turn(TurnRequest(...))`. While it runs,
    `client`, `database`, `conversations`, `memory`, `jobs` and `runs` are open, `catalog` knows
    the models of the agent server, `accounting` the tokens spent, and `status` tells other
    processes how this one is (see `TendrilResources`).
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self._queues: ConversationQueues = ConversationQueues()
        self._responder = Responder(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.pending} pending>"

    async def turn(self, request: TurnRequest) -> TurnResult:
        """Answer a question; one at a time in each conversation. Never raises."""
        queue = self._queues.for_conversation(request.conversation)
        if not await queue.enter(request.question(), joins=request.joins and request.keeps):
            return NO_REPLY
        try:
            return await queue.run(self._take_turn(request, queue), request.keeps) or NO_REPLY
        finally:
            queue.leave()  # the next question has its turn

    async def answer_peer(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question of another tendril, in the name of who is behind it. Never raises."""
        result = await self.catch_errors(lambda: self.turn(self.request_from_peer(question)))
        return PeerAnswer(result.text, result.ok, result.iterations, result.calls)

    async def run_in_order(
        self, conversation: str, work: Callable[[], Coroutine[Any, Any, TurnResult]]
    ) -> TurnResult:
        """Run `work`, which needs no model, after the questions that a conversation already has.

        It must not raise, nor wait for a turn in the same conversation. `stop` ends it, too.
        """
        queue = self._queues.for_conversation(conversation)
        if not await queue.enter(Question("", ""), joins=False):
            return NO_REPLY
        try:
            return await queue.run(work()) or NO_REPLY
        finally:
            queue.leave()

    async def _take_turn(self, request: TurnRequest, queue: ConversationQueue) -> TurnResult:
        """Answer, deliver the answer, and remember it if the person has it."""
        memory = self.memory.for_room(
            request.room or request.conversation,
            request.conversation,
            request.person or request.who,
        )
        result = await self.catch_errors(lambda: self._responder.answer(request, queue, memory))
        if request.deliver and not await request.deliver(result):
            _log.warning("turn.not_delivered", tendril=self.name)
            return result
        # Also when the tendril stops just then: the person has the answer.
        await await_shielded(asyncio.ensure_future(_remember(result, queue, memory)))
        if result.on_delivered:
            await result.on_delivered()
        return result

    async def catch_errors(self, work: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        """Return what `work` returns; when it fails, an apology for the person who asked."""
        try:
            return await work()
        except ModelError as error:
            _log.warning("turn.no_answer", reason=type(error).__name__, error=str(error))
            self.access.report()
            return TurnResult(error.sentence, ok=False)
        except StorageError as error:
            _log.error("turn.no_disk", tendril=self.name, error=str(error))
            return TurnResult(NO_DISK, ok=False)
        except Exception:  # noqa: BLE001 -- the turn boundary: nobody's traceback reaches a person
            _log.exception("turn.failed", tendril=self.name)
            return TurnResult(FAILED, ok=False)

    @property
    def pending(self) -> int:
        """The number of questions that are being answered or wait for it."""
        return len(self._queues)

    def stop(self, conversation: str) -> bool:
        """End what is being answered in a conversation and what waits there, and remember nothing
        of it. Return False when there was nothing."""
        return self._queues.stop(conversation)

    async def clear(self, conversation: str) -> int:
        """Forget a conversation, including what is being answered in it; return how many turns it
        had. Raises StorageError."""
        queue = self._queues.for_conversation(conversation)
        queue.ephemeral = True
        async with queue.memory:
            await self.accounting.forget(f"{self.name}/{conversation}")
            await self.runs.clear(conversation)
            await self.skills.forget(conversation)
            room = await self.conversations.room(conversation)
            turns = await self.conversations.clear(conversation)
            await self.memory.on_cleared(conversation, room)
            return turns

    async def compact(self, conversation: str) -> int:
        """Show the model only the newest turns of a conversation from now on, with freshly chosen
        log lines; return how many turns are left out. A background job summarises those, where the
        model is good enough for that. Raises StorageError."""
        queue = self._queues.for_conversation(conversation)
        if not await queue.enter(Question("", ""), joins=False):
            return 0
        try:
            window = await self.conversations.window(conversation)
            turns = await self.conversations.turns(conversation, start=window.turn_start)
            if len(turns) > COMPACTED:
                window = PromptWindow(0, turns[-COMPACTED].id)
                await self.conversations.move_window(conversation, window)
                room = await self.conversations.room(conversation)
                await self.memory.compact(room, turns[-COMPACTED - 1].id)
            return max(0, len(turns) - COMPACTED)
        finally:
            queue.leave()


async def _remember(result: TurnResult, queue: ConversationQueue, memory: RoomMemory) -> None:
    """Store the turn, unless it failed or its conversation was cleared meanwhile."""
    try:
        async with queue.memory:
            if result.ok and result.remember and not queue.ephemeral:
                await result.remember()
                await memory.after_turn()
    except StorageError as error:  # the person still gets the answer
        _log.error("turn.not_kept", error=str(error))
