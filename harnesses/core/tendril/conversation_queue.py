"""The questions of one conversation: one is answered at a time, in order of arrival.

A question that goes on from the one being answered ("and in winter?") may join it: a run that has
begun takes it in before its next call of the model. Any other has a turn of its own, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from llm.intents.question_text import goes_on
from llm.messages.message import Message, Question

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A queued question; the future resolves True when it may run, False when it will not."""

    question: Question
    joins: bool
    turn: asyncio.Future[bool]


class ConversationQueue(Generic[T]):
    """The queue of one conversation: `enter`, then `run`, then `leave`. Others may `stop` it.

    Hold the lock `memory` while something of the conversation is written or deleted. What is
    `ephemeral` is not remembered.
    """

    def __init__(self) -> None:
        self.memory = asyncio.Lock()
        self.ephemeral = False
        self._busy = False
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[T] | None = None

    def __repr__(self) -> str:
        state = "busy" if self._busy else "idle"
        return f"<ConversationQueue {state}, {len(self._waiting)} waiting>"

    def __len__(self) -> int:
        return self._busy + len(self._waiting)

    async def enter(self, question: Question, joins: bool) -> bool:
        """Wait for the turn of `question`; return False when it joined another or was stopped."""
        if not self._busy:
            self._busy = True
            return True
        waiting = _Waiting(question, joins, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            if waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.result():
                self.leave()
            raise

    async def run(self, work: Coroutine[Any, Any, T], keeps: bool = True) -> T | None:
        """Run `work`; return its result, or None when it was stopped.

        It is ephemeral from the start unless memory `keeps` it.
        """
        self.ephemeral = not keeps
        async with asyncio.TaskGroup() as self._tasks:
            self._running = running = self._tasks.create_task(work)
        return None if running.cancelled() else running.result()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the current work. It goes on when that is stopped, and the next
        question waits for it."""
        self._tasks.create_task(work)

    def leave(self) -> None:
        """Let the next question have its turn."""
        self._running = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():
                waiting.turn.set_result(True)
                return
        self._busy = False

    async def take_followups(self) -> list[Message]:
        """Return the questions that join what runs now, in order, up to one that has to have a
        turn of its own; they no longer wait."""
        waiting = [each for each in self._waiting if not each.turn.done()]
        joining = list(takewhile(_is_follow_up, waiting))
        for each in joining:
            self._waiting.remove(each)
            each.turn.set_result(False)
        for each in joining:
            await each.question.wait_logged()
        return [each.question.message() for each in joining]

    def stop(self) -> bool:
        """Cancel what runs and drop what waits; return False when nothing ran."""
        stopped = self._running is not None and self._running.cancel()
        for waiting in self._waiting:
            if not waiting.turn.done():
                waiting.turn.set_result(False)
        self._waiting.clear()
        return stopped


def _is_follow_up(waiting: _Waiting) -> bool:
    return waiting.joins and goes_on(waiting.question.text)


class ConversationQueues(Generic[T]):
    """The queues of all conversations by name, each dropped when unused. The length is the number
    of questions that are being answered or wait."""

    def __init__(self) -> None:
        self._queues: WeakValueDictionary[str, ConversationQueue[T]] = WeakValueDictionary()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def for_conversation(self, conversation: str) -> ConversationQueue[T]:
        """Return the queue of a conversation."""
        return self._queues.setdefault(conversation, ConversationQueue())

    def stop(self, conversation: str) -> bool:
        """Cancel what runs there and drop what waits; return False when nothing ran."""
        queue = self._queues.get(conversation)
        return queue.stop() if queue else False

    async def drop(self, belongs: Callable[[str], bool]) -> None:
        """Cancel everything in the conversations that `belongs` picks. After this, nothing more of
        it is written to memory."""
        for queue in [queue for name, queue in self._queues.items() if belongs(name)]:
            queue.ephemeral = True
            queue.stop()
            async with queue.memory:
                pass
