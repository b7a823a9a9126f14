"""The turns of a conversation: a question and all that its turn needs, the answer, the queue.

One question of a conversation is answered at a time, in order of arrival. One that goes on from the
one being answered ("and in winter?") may join it: a run that has begun takes it in before its next
call of the model. Any other has a turn of its own, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any
from weakref import WeakValueDictionary

from harnesses.core.services.peers import Origin
from llm.agent.tool_executor import Profile, RunLimits
from llm.agent.trace import Deferral, Outcome
from llm.client.client import OnText, Priority
from llm.client.settings import AgentSettings
from llm.intents.question_text import goes_on
from llm.messages.image import Image
from llm.messages.message import Message, Question, Status
from llm.prompt.log_window import LogWindow
from llm.tools.toolbox import Rights
from terrarium.usage import TokenUsage

Action = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The answer to a turn request. `ok` is False when the text is an apology and nothing was kept;
    an empty text means that there is nothing to say: the question has joined another or was
    stopped, or the model wants to stay silent. `usage` are the tokens, `iterations` and `calls`
    how often the model and tools were called. `messages` is what memory keeps of it beside the
    question, by `remember`; `status` how it is with the conversation, `deferral` when to look at it
    again (see `llm.agent.trace`), `on_delivered` what is to be done when the person has it."""

    text: str
    ok: bool = True
    usage: TokenUsage = field(default_factory=TokenUsage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    status: Status | None = None
    deferral: Deferral | None = None
    remember: Action | None = field(default=None, compare=False)
    on_delivered: Action | None = field(default=None, compare=False)
    iterations: int = 0
    calls: int = 0

    @classmethod
    def from_outcome(cls, outcome: Outcome, remember: Action, on_delivered: Action) -> TurnResult:
        """Make the answer of a turn that ended in `outcome`."""
        return cls(
            outcome.text,
            usage=outcome.usage,
            iterations=outcome.iterations,
            calls=outcome.calls,
            messages=outcome.messages,
            status=outcome.status,
            deferral=outcome.deferral,
            remember=remember,
            on_delivered=on_delivered,
        )


NO_REPLY = TurnResult("", ok=False)
"""The result for a question that has joined another or was stopped."""


Deliver = Callable[[TurnResult], Coroutine[Any, Any, bool]]
"""Delivers an answer to the person who asked; returns whether they have it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnRequest:
    """A question of `who` in `conversation`, with everything that its turn needs.

    - `person` is the name under which memory keeps the asker (default: `who`), `room` what the
      conversation shares with others, such as its channel (default: the conversation alone).
      `payer` is who has the budget of the asker, where a person is to be known better than by
      `person`: the server gets a pseudonym of it, and it is kept nowhere.
    - `log_window` is the part of the log that belongs to the question.
    - `tools` are objects with `@tool` methods, added to those of the tendril; `rights` returns
      what the person may have done by them.
    - `persona` (a name or a text) replaces the tendril's, `values` fill its `$names`, `model`
      replaces the configured one.
    - `on_text` gets each piece of the answer; `deliver` gets the answer before the next question
      has its turn. What the person does not have, memory does not keep.
    - A question that `joins` may become part of the one that is being answered, if it goes on from
      that. Unless memory `keeps` it, nothing of the turn is stored, and of a person's question
      no trace either.
    - `origin` is who is behind the question, for the tendrils that are asked on their behalf; None:
      no other is asked.
    - `profile` limits the run, `review` has its text reviewed. The trace of a `private` request
      names nobody. `run` is the key of the trace, for a run repeated after a crash
      (`llm.agent.trace`).
    - An `image` is shown to a model that can see, with the question, and kept nowhere; of any other
      model the answer says so.
    - With `wants_status` the model is asked for the state of the conversation, for follow-ups.
    """

    conversation: str
    who: str
    text: str
    person: str = ""
    room: str = ""
    payer: str = ""
    log_window: LogWindow | None = None
    tools: Sequence[object] = ()
    rights: Rights = frozenset
    values: Mapping[str, str] = field(default_factory=dict)
    priority: Priority = "interactive"
    on_text: OnText | None = None
    persona: str | None = None
    model: str = ""
    joins: bool = False
    keeps: bool = True
    deliver: Deliver | None = None
    profile: Profile = "standard"
    private: bool = False
    review: bool = False
    run: str = ""
    wants_status: bool = False
    origin: Origin | None = None
    image: Image | None = None

    def __repr__(self) -> str:
        """Name the conversation, unless it is private or not kept, and never the words."""
        return f"<TurnRequest {self.label} {self.profile}, {len(self.text)} characters>"

    @property
    def label(self) -> str:
        """The conversation as the process log may name it: only the kind of one that is private,
        or of which nothing is kept."""
        if self.private:
            return "private"
        return "not kept" if self.is_unrecorded else self.conversation

    @property
    def is_unrecorded(self) -> bool:
        """True for a question of which nothing is to be stored, not even that it was asked."""
        return self.is_by_person and not self.keeps

    @property
    def is_by_person(self) -> bool:
        """True when a person has asked, and waits for the answer."""
        return self.profile in ("standard", "command")

    def question(self) -> Question:
        """Return the question as the model is asked it."""
        return Question(
            self.who,
            self.text,
            self.log_window.pending_event if self.log_window and self.joins else None,
        )

    def limits(self, settings: AgentSettings) -> RunLimits:
        """Return the limits of the run: of another tendril's question, the budget that it has
        left."""
        limits = RunLimits.from_settings(settings, self.profile)
        budget = self.origin.budget if self.origin else None
        return limits.within(budget) if budget else limits

    def with_tools(self, *owners: object | None) -> TurnRequest:
        """Return the request with the tools of more owners; None has none."""
        return replace(self, tools=[*self.tools, *(each for each in owners if each is not None)])

    async def with_logged_question(self) -> TurnRequest:
        """Return the request once all that was said before the question is in the log."""
        if self.log_window is None:
            return self
        return replace(self, log_window=await self.log_window.settled())


@dataclass(slots=True, eq=False)
class _Waiting:
    """A queued question; the future resolves True when it may run, False when it will not."""

    question: Question
    joins: bool
    turn: asyncio.Future[bool]


class ConversationQueue:
    """The queue of one conversation: `enter`, then `run`, then `leave`. Others may `stop` it.

    Hold the lock `memory` while something of the conversation is written or deleted. What is
    `ephemeral` is not remembered.
    """

    def __init__(self) -> None:
        self.memory = asyncio.Lock()
        self.ephemeral = False
        self._busy = False
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[TurnResult] | None = None

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

    async def run(
        self, work: Coroutine[Any, Any, TurnResult], keeps: bool = True
    ) -> TurnResult | None:
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


class ConversationQueues:
    """The queues of all conversations by name, each dropped when unused. The length is the number
    of questions that are being answered or wait."""

    def __init__(self) -> None:
        self._queues: WeakValueDictionary[str, ConversationQueue] = WeakValueDictionary()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def for_conversation(self, conversation: str) -> ConversationQueue:
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
