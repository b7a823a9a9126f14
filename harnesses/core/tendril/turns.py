"""The turns of a tendril: questions are queued, answered, delivered and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TypeVar
from weakref import WeakValueDictionary

import structlog

from harnesses.core.services.peers import PeerService
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.responder import Responder
from harnesses.core.tendril.turn import NO_REPLY, ConversationQueue, TurnRequest, TurnResult
from llm.client.client import RequestOptions
from llm.memory.room import RoomMemory
from llm.messages.errors import ModelError
from llm.messages.message import Question
from llm.reading.reading import Reading, Surroundings
from llm.tools.toolbox import Toolbox
from storage.db.errors import ServerAway, StorageError
from storage.log import ChatLog
from storage.memory.conversations import PromptWindow
from terrarium.cancellation import CancelScope, ScopeCancelled, await_shielded

FAILED = "Something went wrong on my side; it has been noted. Please try again."
NO_DATABASE = "I cannot reach my database at the moment; please ask again later."
NO_DISK = "I cannot use my files at the moment (the disk may be full); please tell my operator."
RESTARTED = "I am being restarted; please ask again in a moment."

REFUSAL_TIMEOUT = 0.5
"""Seconds in which `Turns.close` tells everybody who still waits to ask again."""

COMPACTED = 4
"""The number of turns that the model still sees after `Turns.compact`."""

T = TypeVar("T")

_log = structlog.get_logger()


class Turns:
    """The turns of a tendril, with its `resources`, the `log` and its questions to `peers`.

    `owner` has the `@tool` methods that every question may use, `offered` returns the owners of the
    tools of the medium.
    """

    def __init__(
        self,
        resources: Resources,
        log: ChatLog,
        peers: PeerService,
        owner: object,
        offered: Callable[[], Iterable[object]] = tuple,
    ) -> None:
        self._resources, self._log = resources, log
        # Weak: each turn, running or waiting, holds its queue, which goes with the last of them.
        self._queues: WeakValueDictionary[str, ConversationQueue] = WeakValueDictionary()
        self._responder = Responder(resources, log, peers, owner)
        self._owner, self._offered = owner, offered
        self._open: set[CancelScope] = set()  # of the questions by people
        self._is_closing = False
        self._idle = asyncio.Event()

    @property
    def pending(self) -> int:
        """The number of questions being answered or queued."""
        return sum(map(len, self._queues.values()))

    def tool_names(self) -> list[str]:
        """Return the names of the tools that a question may use."""
        more = self._resources.configuration.prompts.tools()
        return [*Toolbox.from_owners(self._owner, *self._offered(), *more).names()]

    async def take(self, request: TurnRequest) -> TurnResult:
        """Answer a question, one at a time per conversation; return `NO_REPLY` if it was stopped or
        joined another. Never raises, except when cancelled."""
        if not request.is_by_person:
            return await self._take(request)
        scope = CancelScope()
        self._open.add(scope)
        self._idle.clear()
        try:
            with suppress(ScopeCancelled):
                if not self._is_closing:
                    return await scope.result(self._take(request))
            result = TurnResult(RESTARTED, ok=False)
            if request.deliver:
                await self._log_errors(request.deliver(result))
            return result
        finally:
            self._open.discard(scope)
            if not self._open:
                self._idle.set()

    async def close(self, grace: float) -> None:
        """Give the questions that people have asked `grace` seconds to be answered; tell those who
        then still wait, and who asks meanwhile, to ask again."""
        self._is_closing = True
        for seconds in (grace, REFUSAL_TIMEOUT):
            if not self._open:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            for scope in self._open:
                scope.stop()

    async def _take(self, request: TurnRequest) -> TurnResult:
        queue = self._queue_of(request.conversation)
        memory = RoomMemory.of(
            self._resources.memory,
            request.room or request.conversation,
            request.conversation,
            request.person or request.who,
        )

        async def answer(place_in: ConversationQueue | None) -> TurnResult:
            work = self._responder.answer
            return await self.catch_errors(lambda: work(request, place_in, memory))

        async def run() -> TurnResult:
            return await self._finish(request, await answer(queue), queue, memory)

        # One of them is found: the command that the words ask for, an answer that needs no model,
        # or else a place in the queue.
        command = direct = place = None
        stops = queue.stops
        queue.arriving += 1
        try:
            async with queue.arrivals:
                if request.is_by_person:
                    people = request.log_window.people if request.log_window else ()
                    began = monotonic()
                    reading = await self.read(request.text, request.who, people)
                    request = replace(request, reading=reading, reading_time=monotonic() - began)
                    if request.command:
                        command = await self._log_errors(request.command(reading))
                    # What needs no model overtakes the questions that wait for it.
                    if queue.is_busy and not command and not reading.follows_up:
                        direct = await answer(None)
                if queue.stops != stops:
                    if direct and direct.trace:
                        await direct.trace.close()
                    return NO_REPLY
                if not (command or (direct and direct.ok)):
                    # Only what memory keeps may join: the turn that takes it in is remembered.
                    follows_up = request.reading is not None and request.reading.follows_up
                    joins = request.joins and request.keeps and follows_up
                    place = queue.place(request.question(), joins)
        finally:
            queue.arriving -= 1
        if command:
            await self._log_errors(command())
        elif place is None and direct:
            return await self._finish(request, direct, queue, memory)
        if place is None or not await queue.wait(place):
            return NO_REPLY
        try:
            return await queue.run(run(), request.keeps) or NO_REPLY
        finally:
            queue.leave()  # also after an error or a cancellation, or the queue would stay blocked

    def _queue_of(self, conversation: str) -> ConversationQueue:
        return self._queues.setdefault(conversation, ConversationQueue())

    async def read(self, text: str, speaker: str = "", people: Collection[str] = ()) -> Reading:
        """Return what is read from a sentence to us: its kind, and what that asks for. `people` are
        the nicks of those present. Never raises, except when cancelled."""
        resources = self._resources
        zone = resources.configuration.agent.zone
        around = Surroundings(resources.clock.now(), zone, speaker, people)
        options = RequestOptions(f"{resources.name}/reading")
        return await resources.reader.read(text, options, around)

    async def _finish(
        self, request: TurnRequest, result: TurnResult, queue: ConversationQueue, memory: RoomMemory
    ) -> TurnResult:
        """Deliver an answer, and remember the turn if it was delivered."""

        async def link_quotes() -> None:
            # So that our lines with the answer are erased with whom it quotes.
            asked = request.log_window.pending_event if request.log_window else None
            if result.quotes and asked and (question := await asked.wait_visible()):
                await self._log.add_quotes(question, result.quotes)

        async def remember() -> None:
            try:
                # The flag is read under the lock that `clear` and `drop` take, so that nothing can
                # be written after they have deleted.
                async with queue.memory:
                    if result.ok and result.remember and queue.keeps:
                        await result.remember()
                        await memory.memory.schedule(memory.room)
            except StorageError as error:  # the person has the answer all the same
                _log.error("turn.not_kept", error=str(error))

        tendril = self._resources.name
        is_delivered: bool | None = True
        try:
            await self._log_errors(link_quotes())
            began = monotonic()
            if request.deliver:
                is_delivered = await self._log_errors(request.deliver(result))
            if result.trace:
                result.trace.add("delivery", tendril, began, ok=bool(is_delivered))
            if not is_delivered:
                _log.warning("turn.not_delivered", tendril=tendril)
                # After an error the turn has failed: callers that try again later have to know.
                return replace(result, text=FAILED, ok=False) if is_delivered is None else result
            # Shielded, because the person has the answer: a tendril that is just then stopping must
            # not forget a turn that the person refers to later.
            await await_shielded(asyncio.ensure_future(remember()))
        finally:
            if result.trace:
                await result.trace.close()
        if result.on_delivered:
            await self._log_errors(result.on_delivered())
        return result

    async def _log_errors(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`, None if it fails: only the log is told, unlike below."""
        try:
            return await work
        except StorageError as error:
            _log.error("turn.no_disk", tendril=self._resources.name, error=str(error))
        except Exception:  # noqa: BLE001 -- as in `catch_errors`: a turn never raises
            _log.exception("turn.failed", tendril=self._resources.name)
        return None

    async def catch_errors(self, work: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        """Return the result of `work` or, if it fails, an apology to send to the person. Errors are
        logged."""
        try:
            return await work()
        except ModelError as error:
            _log.warning("turn.no_answer", reason=type(error).__name__, error=str(error))
            self._resources.access.report()
            return TurnResult(error.sentence, ok=False)
        except StorageError as error:
            _log.error("turn.no_disk", tendril=self._resources.name, error=str(error))
            return TurnResult(NO_DATABASE if isinstance(error, ServerAway) else NO_DISK, ok=False)
        except Exception:  # noqa: BLE001 -- the turn boundary: no traceback may reach a person
            _log.exception("turn.failed", tendril=self._resources.name)
            return TurnResult(FAILED, ok=False)

    def stop(self, conversation: str) -> bool:
        """Cancel the running turn of a conversation and drop its queued questions, without
        remembering any of them; return False if there were none."""
        queue = self._queues.get(conversation)
        return queue.stop() if queue else False

    async def clear(self, conversation: str) -> int:
        """Delete a conversation; return how many turns it had. A turn that is running goes on, but
        is not remembered. Raises StorageError."""
        queue, resources = self._queue_of(conversation), self._resources
        # Set before waiting for the lock: a turn that acquires it first is deleted below, one that
        # acquires it later sees the flag and stores nothing.
        queue.keeps = False
        async with queue.memory:
            await resources.accounting.forget(f"{resources.name}/{conversation}")
            await resources.runs.clear(conversation)
            await resources.skills.forget(conversation)
            room = await resources.conversations.room(conversation)
            turns = await resources.conversations.clear(conversation)
            if room != conversation:  # others share the room, and the memories made again
                await resources.memory.schedule(room)
            return turns

    async def drop(self, belongs: Callable[[str], bool]) -> None:
        """Cancel all turns and drop all waiting questions of the conversations whose names
        `belongs` selects. On return, nothing of these turns is written to memory any more."""
        for queue in [queue for name, queue in self._queues.items() if belongs(name)]:
            await queue.drop()

    async def compact(self, conversation: str) -> int:
        """Reduce the prompt of a conversation to its newest turns and freshly chosen log lines;
        return how many turns are left out. A background job summarises those if the model is
        capable of it. Raises StorageError."""
        queue, resources = self._queue_of(conversation), self._resources
        if not await queue.wait(queue.place(Question("", ""), joins=False)):
            return 0
        try:
            _, turns = await resources.conversations.recall(conversation)
            if len(turns) > COMPACTED:
                # Event 0: the next prompt chooses its first log line again.
                window = PromptWindow(0, turns[-COMPACTED].id)
                await resources.conversations.move_window(conversation, window)
                room = await resources.conversations.room(conversation)
                await resources.memory.compact(room, turns[-COMPACTED - 1].id)
            return max(0, len(turns) - COMPACTED)
        finally:
            queue.leave()
