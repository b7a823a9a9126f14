"""Turn requests, turn results, and the queue of each conversation.

A conversation answers one question at a time, in order of arrival. A follow-up to the question
being answered ("and in winter?") may join it: the running agent loop takes it in before its next
call of the model. Any other question gets a turn of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import monotonic
from typing import Any

from harnesses.core.services.peers import Origin
from llm.agent.agent_loop import OnActivity
from llm.agent.tool_executor import Trigger
from llm.agent.trace import Trace
from llm.answerers.answerers import RoomView
from llm.client.client import Priority
from llm.client.response import OnText
from llm.log_questions import QuotedAnswer
from llm.messages.message import AttachedFile, Image, Message, Question, quotes_of
from llm.prompt.log_window import LogWindow, quoted_answer
from llm.reading.reading import Reading
from llm.tools.consent import Asker, Rights
from storage.chat_log.event import Event, without_host
from storage.db.errors import StorageError
from storage.memory.conversations import Conversations
from storage.usage.usage import TokenUsage

Action = Callable[[], Awaitable[None]]

_EARLIER_TURNS = 15  # whose questions are the asker's words: about as many as a prompt shows


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The answer to a turn request.

    If `ok` is False, `text` is an apology and nothing is remembered. An empty text means that there
    is nothing to say: the question joined another or was stopped, or the model stays silent.
    `usage` are the tokens, `iterations` and `calls` the number of model and tool calls.
    `remember` stores the question and the `messages` that answer it; `on_delivered` is called once
    the person has the answer, and the `trace` is closed then.
    """

    text: str
    ok: bool = True
    usage: TokenUsage = field(default_factory=TokenUsage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    remember: Action | None = field(default=None, compare=False)
    on_delivered: Action | None = field(default=None, compare=False)
    trace: Trace | None = field(default=None, compare=False)
    iterations: int = 0
    calls: int = 0

    @property
    def quotes(self) -> frozenset[int]:
        """The ids of the log lines that the answer repeats."""
        return quotes_of(*self.messages[-1:])


NO_REPLY = TurnResult("", ok=False)
"""The result of a question that joined another or was stopped."""


Deliver = Callable[[TurnResult], Coroutine[Any, Any, bool]]
"""Delivers an answer to the person who asked; returns True if they have received it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnRequest:
    """A question by `who` in `conversation`, with everything that its turn needs.

    - `person`: the name under which memory knows the asker (default: `who`).
    - `room`: what the conversation shares with others, such as its channel (default: itself).
    - `budget_owner`: the name whose budget is charged, if `person` does not identify the asker well
      enough. The server receives only a pseudonym of it, and it is not stored.
    - `log_window`: the part of the log that belongs to the question.
    - `tools`: objects with `@tool` methods, in addition to those of the tendril; `rights` returns
      the rights of the person for tools that need one.
    - `values` fill the `$names` of the persona; `persona` (a name or a text) and `model` replace
      those of the tendril.
    - `on_text` receives each piece of the answer, `on_activity` what a tool is doing for it;
      `deliver` receives the whole answer before the next question has its turn. A turn that was not
      delivered is not remembered.
    - `command` returns what runs the command that a reading asks for, None if it asks for none.
    - `room_view`: who and what is in the room now, if the medium knows. `reading` is what was read
      from the question, by the turn itself, in `reading_time` seconds.
    - `pasted`: further lines of the question, which its turn finds in the log.
    - `joins`: the question may join the one being answered, if it is a follow-up.
    - `replaces`: the id of the turn, if not 0, that this one is remembered instead of, as of all
      after it. Its prompt shows those before.
    - `keeps`: memory keeps the turn. Otherwise nothing of it is stored and, for a person's
      question, no trace either.
    - `origin`: the person and scope for questions to other tendrils; None: none may be asked.
    - `trigger` is the reason for the run, which sets its limits; with `review` the answer is
      reviewed.
    - `private`: the trace holds no words and does not show the conversation's name.
    - `run`: the key of the trace, for a run that is repeated after a crash (`llm.agent.trace`).
    - `image`: shown to the model with the question, but not stored. If the model cannot see, the
      answer says so. `file` is shown with it as well, and remembered with the turn.
    """

    conversation: str
    who: str
    text: str
    person: str = ""
    room: str = ""
    budget_owner: str = ""
    log_window: LogWindow | None = None
    tools: Sequence[object] = ()
    rights: Rights = frozenset
    values: Mapping[str, str] = field(default_factory=dict)
    priority: Priority = "interactive"
    on_text: OnText | None = None
    on_activity: OnActivity | None = None
    persona: str | None = None
    model: str = ""
    joins: bool = False
    replaces: int = 0
    keeps: bool = True
    deliver: Deliver | None = None
    trigger: Trigger = "standard"
    private: bool = False
    review: bool = False
    run: str = ""
    origin: Origin | None = None
    image: Image | None = None
    file: AttachedFile | None = None
    command: Callable[[Reading], Awaitable[Action | None]] | None = None
    reading: Reading | None = None
    reading_time: float = 0.0
    room_view: RoomView | None = None
    pasted: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        """Show the label of the conversation, but never the text, as it may appear in logs."""
        return f"<TurnRequest {self.label} {self.trigger}, {len(self.text)} characters>"

    @property
    def label(self) -> str:
        """The name of the conversation for the process log; "private" or "not kept" instead, where
        the log must not show it."""
        if self.private:
            return "private"
        return "not kept" if self.is_unrecorded else without_host(self.conversation)

    @property
    def is_unrecorded(self) -> bool:
        """True if nothing of the question may be stored, not even the fact that it was asked."""
        return self.is_by_person and not self.keeps

    @property
    def has_more(self) -> bool:
        """True if an image or a file belongs to the question."""
        return self.image is not None or self.file is not None

    @property
    def is_by_person(self) -> bool:
        """True if a person has asked and waits for the answer."""
        return self.trigger == "standard"

    @property
    def is_unasked(self) -> bool:
        """True if nobody has asked: the model may speak, or stay silent."""
        return self.trigger == "proactive"

    @property
    def payer(self) -> str:
        """The name whose budget is charged, "" if no person has asked: then only those of the
        tendril, the model and the channel are."""
        if self.is_unasked:
            return ""
        return self.budget_owner or self.person or (self.who if self.is_by_person else "")

    @property
    def asker_words(self) -> str:
        """The asker's own words: "" if nobody asked; of a question from another tendril, which a
        model may have written, those of the question there."""
        if self.is_unasked:
            return ""
        if self.origin and self.origin.words is not None:
            return self.origin.words
        return self.text

    def asker(self, conversations: Conversations) -> Asker:
        """Return the person for whom the tools of the turn run."""

        async def earlier() -> Sequence[str]:
            if self.is_unasked:
                return ()
            try:
                turns = await conversations.turns(self.conversation, limit=_EARLIER_TURNS)
            except StorageError:  # then they have to write it again
                return ()
            messages = (message for turn in turns for message in turn.messages)
            return [each["content"] for each in messages if each.get("name") == self.who]

        # What was read is the text, which `asker_words` may not be.
        is_read = self.reading is not None and self.asker_words == self.text
        kind = self.reading.sure_kind if self.reading and is_read else ""
        return Asker(self.who, self.asker_words, self.rights, earlier, self.private, kind=kind)

    @property
    def known_reading(self) -> Reading:
        """The reading of the question, an empty one if nothing was read."""
        return self.reading or Reading(self.text)

    async def find_quotes(self, trace: Trace) -> QuotedAnswer | None:
        """Return the log lines that answer a person's question, or None; the search is a step of
        the `trace`."""
        if self.log_window is None or self.has_more or not self.is_by_person:
            return None
        began = monotonic()
        found = await quoted_answer(self.log_window, self.known_reading)
        trace.add("retrieval", "log", began, verdict=f"{found.score:.2f}" if found else "")
        return found

    def question(self) -> Question:
        """Return the question for the model; with its pending event only if it may join."""
        return Question(
            self.who,
            "\n".join([self.text, *(line.text for line in self.pasted)]),
            self.log_window.pending_event if self.log_window and self.joins else None,
            tuple(line.id for line in self.pasted),
            self.file,
            self.model,
        )

    async def settled(self, *, with_pasted: bool) -> TurnRequest:
        """Return the request with its settled log window, and `with_pasted` the further lines of a
        text that the asker has pasted: clients send each as a message of its own. Raises
        StorageError."""
        if self.log_window is None:
            return self
        window = await self.log_window.settled()
        pasted = await window.pasted() if with_pasted and self.is_by_person else ()
        return replace(self, log_window=window, pasted=tuple(pasted))


@dataclass(slots=True, eq=False)
class Waiting:
    """A queued question; the future resolves to True if it may run, False if it joined another or
    was stopped."""

    question: Question
    joins: bool
    turn: asyncio.Future[bool]


class ConversationQueue:
    """The queue of one conversation: `place`, `wait`, `run`, `leave`. Others may `stop` it.

    Hold the lock `arrivals` from the arrival of a question until it is placed, and count it as
    `arriving`: what is done to it before must not change the order. It is dropped if the number of
    `stops` has grown. Hold the lock `memory` while writing to or deleting from the conversation,
    and write only while `keeps` is True: it is False if the current turn must not be remembered.
    `is_busy` is True while a question is being answered.
    """

    def __init__(self) -> None:
        self.memory = asyncio.Lock()
        self.arrivals = asyncio.Lock()
        self.stops = self.arriving = 0
        self.keeps = True
        self.is_busy = False
        self._waiting: deque[Waiting] = deque()
        self._granted: Waiting | None = None  # until its `wait` resumes
        self._running: asyncio.Task[TurnResult] | None = None

    def __repr__(self) -> str:
        state = "busy" if self.is_busy else "idle"
        return f"<ConversationQueue {state}, {len(self._waiting)} waiting>"

    def __len__(self) -> int:
        return self.is_busy + len(self._waiting) + self.arriving

    def place(self, question: Question, joins: bool) -> Waiting:
        """Put a question at the end of the queue; its turn has come if it is the only one. The
        caller must `wait` for it."""
        waiting = Waiting(question, joins, asyncio.get_running_loop().create_future())
        if self.is_busy:
            self._waiting.append(waiting)
        else:
            self.is_busy = True
            self._granted = waiting
            waiting.turn.set_result(True)
        return waiting

    async def wait(self, waiting: Waiting) -> bool:
        """Wait for the turn of a placed question; return False if it joined another or was stopped.
        After True the caller must call `leave`."""
        try:
            may_run = await waiting.turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            # `leave` may have granted us the turn just before the cancellation reached us. The
            # caller never learns of it, so pass it on, or the queue would stay busy forever.
            if waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.result():
                self.leave()
            raise
        # `stop` may have been called since `leave` granted us the turn.
        if may_run and self._granted is not waiting:
            self.leave()
            return False
        self._granted = None if may_run else self._granted
        return may_run

    async def run(
        self, work: Coroutine[Any, Any, TurnResult], keeps: bool = True
    ) -> TurnResult | None:
        """Run `work`, which must not raise; return its result, or None if it was stopped. It is not
        to be remembered if `keeps` is False."""
        self.keeps = keeps
        # A task of its own: `stop` then cancels the work, and not the caller with it.
        async with asyncio.TaskGroup() as tasks:
            self._running = running = tasks.create_task(work)
        return None if running.cancelled() else running.result()

    def leave(self) -> None:
        """End the current turn, and grant the next waiting question its turn."""
        self._running = self._granted = None
        # The queue stays busy while it is handed over, so that a question which arrives before the
        # granted one resumes cannot overtake it.
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():  # done: cancelled, but its task has not run since
                waiting.turn.set_result(True)
                self._granted = waiting
                return
        self.is_busy = False

    async def take_followups(self) -> list[Message]:
        """Remove and return the follow-ups that join the running turn, in order of arrival.

        They end before the first question that needs a turn of its own, so that none overtakes it.
        """
        async with self.arrivals:
            pass  # a follow-up that is being read has arrived too
        waiting = [each for each in self._waiting if not each.turn.done()]
        joining = list(takewhile(lambda each: each.joins, waiting))
        # All are removed before the first await: during it, `stop` or a cancellation may change
        # the queue.
        for each in joining:
            self._waiting.remove(each)
            each.turn.set_result(False)
        for each in joining:
            await each.question.wait_logged()
        return [each.question.message() for each in joining]

    def stop(self) -> bool:
        """Cancel the running turn and drop all waiting questions; return False if there were
        none."""
        self.stops += 1
        dropped = [waiting for waiting in self._waiting if not waiting.turn.done()]
        for waiting in dropped:
            waiting.turn.set_result(False)
        self._waiting.clear()
        granted, self._granted = self._granted, None
        cancelled = self._running is not None and self._running.cancel()
        return cancelled or granted is not None or bool(dropped) or self.arrivals.locked()

    async def drop(self) -> None:
        """Do the same; on return, nothing of these turns is written to memory any more."""
        self.keeps = False
        self.stop()
        # Wait if the turn is being stored just now; if it has not begun, it will see the flag.
        async with self.memory:
            pass
