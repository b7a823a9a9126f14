"""The base class of every tendril: queues questions, answers, delivers and remembers them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import TypeVar

import structlog

from harnesses.core.services.peers import PeerAnswer, PeerQuestion
from harnesses.core.services.question_tools import Door, question_tools
from harnesses.core.tendril.process import TendrilProcess
from harnesses.core.tendril.responder import Responder
from harnesses.core.tendril.turn import (
    NO_REPLY,
    ConversationQueue,
    ConversationQueues,
    TurnRequest,
    TurnResult,
)
from llm.client.client import RequestOptions
from llm.memory.room import RoomMemory
from llm.messages.errors import ModelError
from llm.messages.message import Question
from llm.reading.reading import Reading
from llm.reading.slots import Surroundings
from storage.db.errors import StorageError
from storage.memory.conversations import PromptWindow
from terrarium.cancellation import await_shielded
from terrarium.clock import Clock
from terrarium.config import Config

FAILED = "Something went wrong on my side; it has been noted. Please try again."
NO_DISK = "I cannot use my files at the moment (the disk may be full); please tell whoever runs me."

COMPACTED = 4
"""The number of turns that the model still sees after `Tendril.compact`."""

T = TypeVar("T")

_log = structlog.get_logger()


class Tendril(TendrilProcess):
    """The base class of a tendril: a subclass has a `name`, `@tool` methods, `serve`, and a
    `persona.md` next to its module.

    `serve` turns the events of the medium into `await self.turn(TurnRequest(...))`. While it runs,
    `client`, `database`, `conversations`, `memory`, `jobs` and `runs` are open. `catalog` lists the
    models of the agent server, `accounting` the tokens spent, and `status` reports the state of the
    process to others (see `TendrilResources` and `TendrilMedium`).
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self._queues: ConversationQueues = ConversationQueues()
        self._responder = Responder(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.pending} pending>"

    async def turn(self, request: TurnRequest) -> TurnResult:
        """Answer a question, one at a time per conversation; return `NO_REPLY` if it was stopped or
        joined another. Never raises, except when cancelled."""
        queue = self._queues.for_conversation(request.conversation)
        command = direct = place = None
        stops = queue.stops
        queue.arriving += 1
        try:
            async with queue.arrivals:
                if request.is_by_person:
                    people = request.log_window.people if request.log_window else ()
                    reading = await self.read(request.text, request.who, people)
                    request = replace(request, reading=reading)
                    if request.command:
                        command = await self._log_errors(request.command(reading))
                    # What needs no model overtakes the questions that wait for it.
                    if queue.is_busy and not command and not reading.follows_up:
                        direct = await self._answer_directly(request)
                if queue.stops != stops:
                    return NO_REPLY
                if not (command or direct):
                    # Only what memory keeps may join: the turn that takes it in is remembered.
                    follows_up = request.reading is not None and request.reading.follows_up
                    joins = request.joins and request.keeps and follows_up
                    place = queue.place(request.question(), joins)
        finally:
            queue.arriving -= 1
        if command:
            await self._log_errors(command())
        if direct:
            return await self._finish(request, direct, queue, self._memory_of(request))
        if place is None or not await queue.wait(place):
            return NO_REPLY
        try:
            return await queue.run(self._take_turn(request, queue), request.keeps) or NO_REPLY
        finally:
            queue.leave()  # also after an error or a cancellation, or the queue would stay blocked

    async def read(self, text: str, speaker: str = "", people: Collection[str] = ()) -> Reading:
        """Return what is read from a sentence to us: its kind, and what that asks for. `people` are
        the nicks of those present. Never raises, except when cancelled."""
        around = Surroundings(self.clock.now(), self.agent.zone, speaker, people)
        return await self.reader.read(text, RequestOptions(f"{self.name}/reading"), around)

    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question that comes through a door."""
        return question_tools(door, self.remind, self.skills, self.clock.now, self.agent.zone)

    async def _answer_directly(self, request: TurnRequest) -> TurnResult | None:
        """Return the answer to a request that needs no model, None if it needs the model."""
        memory = self._memory_of(request)

        async def answer() -> TurnResult:
            return await self._responder.answer(request, None, memory) or NO_REPLY

        result = await self.catch_errors(answer)
        return result if result.ok else None

    async def answer_peer(self, question: PeerQuestion) -> PeerAnswer:
        """Answer a question from another tendril, on behalf of the person who asked it. Never
        raises."""
        result = await self.catch_errors(lambda: self.turn(self.request_from_peer(question)))
        return PeerAnswer(
            result.text, result.ok, result.iterations, result.calls, sorted(result.quotes)
        )

    async def _take_turn(self, request: TurnRequest, queue: ConversationQueue) -> TurnResult:
        """Answer a request, deliver the answer, and remember the turn if it was delivered."""
        memory = self._memory_of(request)

        async def answer() -> TurnResult:
            return await self._responder.answer(request, queue, memory) or NO_REPLY

        return await self._finish(request, await self.catch_errors(answer), queue, memory)

    def _memory_of(self, request: TurnRequest) -> RoomMemory:
        return self.memory.for_room(
            request.room or request.conversation,
            request.conversation,
            request.person or request.who,
        )

    async def _finish(
        self,
        request: TurnRequest,
        result: TurnResult,
        queue: ConversationQueue,
        memory: RoomMemory,
    ) -> TurnResult:
        """Deliver an answer, and remember the turn if it was delivered."""
        await self._log_errors(self._link(request, result))
        if request.deliver:
            is_delivered = await self._log_errors(request.deliver(result))
            if not is_delivered:
                _log.warning("turn.not_delivered", tendril=self.name)
                # After an error the turn has failed: callers that try again later have to know.
                return replace(result, text=FAILED, ok=False) if is_delivered is None else result
        # Shielded, because the person has the answer: a tendril that is just then stopping must
        # not forget a turn that the person refers to later.
        await await_shielded(asyncio.ensure_future(_remember(result, queue, memory)))
        if result.on_delivered:
            await self._log_errors(result.on_delivered())
        return result

    async def _link(self, request: TurnRequest, result: TurnResult) -> None:
        """Record in the log which lines the answer quotes, so that our lines with it are erased
        with whom it quotes."""
        asked = request.log_window.pending_event if request.log_window else None
        if result.quotes and asked and (answered := await asked.wait_visible()):
            await self.log.chat_log.add_quotes(answered, result.quotes)

    async def _log_errors(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`, or None if it fails; the error is logged."""
        try:
            return await work
        except StorageError as error:
            _log.error("turn.no_disk", tendril=self.name, error=str(error))
        except Exception:  # noqa: BLE001 -- as in `catch_errors`: a turn never raises
            _log.exception("turn.failed", tendril=self.name)
        return None

    async def catch_errors(self, work: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        """Return the result of `work` or, if it fails, an apology to send to the person. Errors are
        logged."""
        try:
            return await work()
        except ModelError as error:
            _log.warning("turn.no_answer", reason=type(error).__name__, error=str(error))
            self.access.report()
            return TurnResult(error.sentence, ok=False)
        except StorageError as error:
            _log.error("turn.no_disk", tendril=self.name, error=str(error))
            return TurnResult(NO_DISK, ok=False)
        except Exception:  # noqa: BLE001 -- the turn boundary: no traceback may reach a person
            _log.exception("turn.failed", tendril=self.name)
            return TurnResult(FAILED, ok=False)

    @property
    def pending(self) -> int:
        """The number of questions being answered or queued."""
        return len(self._queues)

    def stop(self, conversation: str) -> bool:
        """Cancel the running turn of a conversation and drop its queued questions, without
        remembering any of them; return False if there were none."""
        return self._queues.stop(conversation)

    async def clear(self, conversation: str) -> int:
        """Delete a conversation; return how many turns it had. A turn that is running goes on, but
        is not remembered. Raises StorageError."""
        queue = self._queues.for_conversation(conversation)
        # Set before waiting for the lock: a turn that acquires it first is deleted below, one that
        # acquires it later sees the flag and stores nothing.
        queue.keeps = False
        async with queue.memory:
            await self.accounting.forget(f"{self.name}/{conversation}")
            await self.runs.clear(conversation)
            await self.skills.forget(conversation)
            room = await self.conversations.room(conversation)
            turns = await self.conversations.clear(conversation)
            await self.memory.on_cleared(conversation, room)
            return turns

    async def compact(self, conversation: str) -> int:
        """Reduce the prompt of a conversation to its newest turns and freshly chosen log lines;
        return how many turns are left out. A background job summarises those if the model is
        capable of it. Raises StorageError."""
        queue = self._queues.for_conversation(conversation)
        if not await queue.enter(Question("", ""), joins=False):
            return 0
        try:
            window = await self.conversations.window(conversation)
            turns = await self.conversations.turns(conversation, start=window.turn_start)
            if len(turns) > COMPACTED:
                # Event 0: the next prompt chooses its first log line again.
                window = PromptWindow(0, turns[-COMPACTED].id)
                await self.conversations.move_window(conversation, window)
                room = await self.conversations.room(conversation)
                await self.memory.compact(room, turns[-COMPACTED - 1].id)
            return max(0, len(turns) - COMPACTED)
        finally:
            queue.leave()


async def _remember(result: TurnResult, queue: ConversationQueue, memory: RoomMemory) -> None:
    """Store the turn, unless it failed, must not be remembered, or its conversation was cleared."""
    try:
        # The flag is read under the lock that `clear` and `drop` take, so that nothing can be
        # written after they have deleted.
        async with queue.memory:
            if result.ok and result.remember and queue.keeps:
                await result.remember()
                await memory.after_turn()
    except StorageError as error:  # the person has the answer all the same
        _log.error("turn.not_kept", error=str(error))
