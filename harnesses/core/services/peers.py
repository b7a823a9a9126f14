"""Messages and questions between tendrils, which travel through a shared database.

A tendril has another one say a message, or asks it on behalf of the person who has asked it. The
person, scope and budget in a question are trusted without further authentication: whoever can write
to that database can read everything anyway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import structlog
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from harnesses.core.errors import PeerRefused, UnknownTendril
from llm.agent.agent_loop import AgentLoop
from llm.agent.tool_executor import TOOL_TIMEOUT, RunLimits
from llm.client.client import Priority
from llm.messages.message import QuotingText, ShownText, escape_tags
from llm.tools.toolbox import Tool, Toolbox, ToolError, ToolSource, describe, tool
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Identity, Place, Scope
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.queues.outbox import Outbox, OutgoingMessage, PeerQuestions, PlaceLimits
from terrarium.cancellation import await_shielded
from terrarium.clock import Clock
from terrarium.entry_points import entry_points

MAX_HOPS = 3
"""The most hops of a question from tendril to tendril."""

MAX_QUESTION = 4_000
"""The most characters of a question; `ask` cuts longer ones."""

EMPTY_SCOPE = Scope(frozenset())
"""The empty scope: nothing of the log may be read."""

DEFAULT_BUDGET = RunLimits(iterations=6, calls=10, seconds=120.0)
"""The default budget, for questions that code asks rather than a run of the model."""

MESSAGE_PAUSE, MESSAGES_A_DAY = timedelta(minutes=10), 12
"""The least time between two messages that models send to a place by themselves, and the most of
them in a day."""

_RETRY_PAUSE = 1.0  # seconds between two attempts to say a message
_POLL_INTERVAL = 0.25  # seconds between looks for an answer, and after an error
_MAX_WAIT = 3600.0  # seconds; the budget of the run that asks is shorter

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Origin:
    """The person on whose behalf a question is asked, and its path between tendrils.

    `who` is their identity on `network`, `scope` what they may read. `path` are the tendrils that
    wait for the answer, in the order in which they asked; `run` is the trace key of the last one's
    run, which has `budget` left for the question (None: it comes directly from the person).
    `words` is what the person has written, None if that is the question itself.
    """

    network: str
    who: Identity
    scope: Scope = EMPTY_SCOPE
    path: tuple[str, ...] = ()
    run: str = ""
    budget: RunLimits | None = None
    priority: Priority = "interactive"
    words: str | None = None


@dataclass(frozen=True, slots=True)
class PeerQuestion:
    """A question of another tendril, with its origin. With a `tool` it is a call of that tool, and
    the text is a JSON object of its arguments."""

    text: str
    origin: Origin
    tool: str = ""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer of a tendril (an apology unless `ok`), how much of the budget it has used, and the
    ids of the log lines that it quotes."""

    text: str
    ok: bool = True
    iterations: int = 0
    calls: int = 0
    quotes: Sequence[int] = ()


Present = Callable[[], Mapping[str, str]]
AnswerPeer = Callable[[PeerQuestion], Awaitable[PeerAnswer]]
"""Answers a question of another tendril. May raise PeerRefused only."""

_QUESTION = TypeAdapter(PeerQuestion)
_ANSWER = TypeAdapter(PeerAnswer)
_RESTARTED = PeerAnswer("it was restarted", ok=False)
_FAILED = PeerAnswer("something went wrong there", ok=False)


class PeerService:
    """The questions of the tendril `name` to other tendrils, and theirs to it.

    `present` returns the tendrils that can be asked at the moment: their subjects, by name.
    """

    def __init__(self, database: Database, name: str, present: Present, clock: Clock) -> None:
        self._database = database
        self._questions = PeerQuestions(database)
        self._name, self._present, self._clock = name, present, clock

    def others(self, origin: Origin) -> Mapping[str, str]:
        """Return the tendrils to which a question may be passed on: their subjects, by name.

        Those on its path are left out; after `MAX_HOPS` hops there are none.
        """
        if len(origin.path) >= MAX_HOPS:
            return {}
        taken = (*origin.path, self._name)
        return {name: about for name, about in self._present().items() if name not in taken}

    async def ask(
        self, tendril: str, text: str, origin: Origin, budget: RunLimits = DEFAULT_BUDGET
    ) -> PeerAnswer:
        """Ask another tendril on behalf of `origin`, and wait for its answer.

        The answer may use no more than `budget`. Cancelling the wait cancels the answer. Raises
        PeerRefused and StorageError.
        """
        if tendril in (*origin.path, self._name):
            raise PeerRefused(f"{tendril} waits for this answer itself; asking it goes in a circle")
        if len(origin.path) >= MAX_HOPS:
            raise PeerRefused(
                f"the question has gone through {MAX_HOPS} tendrils already; answer it"
            )
        if budget.iterations < 1 or budget.seconds <= 0:
            raise PeerRefused("nothing is left of the budget of this question; answer it")
        present = self.others(origin)
        if tendril not in present:
            there = ", ".join(present) or "none"
            raise PeerRefused(f"no tendril that can be asked has this name; there are: {there}")
        question = PeerQuestion(text[:MAX_QUESTION], replace(origin, budget=budget))
        return await self.call(tendril, question, budget.seconds)

    async def call(self, tendril: str, question: PeerQuestion, seconds: float) -> PeerAnswer:
        """Send a question or the call of a tool as it is, and wait for the answer. Raises
        PeerRefused when there is none after so many seconds, and StorageError."""
        origin = question.origin
        handed_on = replace(origin, path=(*origin.path, self._name))
        body = _QUESTION.dump_json(replace(question, origin=handed_on)).decode()
        now = self._clock.now()
        # If this process dies, the row is deleted after its deadline.
        deadline = now + timedelta(seconds=seconds)
        number = await self._questions.put(tendril, body, deadline, now)
        try:
            async with asyncio.timeout(seconds):
                while (answer := await self._questions.answer_to(number)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_INTERVAL)
        except TimeoutError as error:
            raise PeerRefused(f"{tendril} has not answered in time") from error
        finally:
            # The missing row makes the other tendril stop, so remove it even when cancelled.
            await await_shielded(asyncio.ensure_future(self._questions.remove(number)))
        return _ANSWER.validate_json(answer)

    async def run(self, answer: AnswerPeer) -> None:
        """Answer the questions to this tendril, several at once, until cancelled."""
        try:
            # What an earlier process has taken and not answered gets an apology.
            await self._questions.answer_taken(self._name, _ANSWER.dump_json(_RESTARTED).decode())
        except StorageError as error:
            _log.error("peers.not_read", error=str(error))

        async def answer_one(number: int, text: str) -> None:  # never raises
            try:
                question = _QUESTION.validate_json(text)
                # `call` does not check the path.
                if len(question.origin.path) > MAX_HOPS or self._name in question.origin.path:
                    raise PeerRefused("the question came in a circle, or by too many tendrils")
                result = await answer(question)
            except (ValidationError, PeerRefused) as error:
                _log.warning("peers.refused", reason=type(error).__name__)
                result = _FAILED
            try:
                await self._questions.answer(number, _ANSWER.dump_json(result).decode())
            except StorageError as error:  # the asker runs into its timeout
                _log.error("peers.not_answered", error=str(error))

        running: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async for _ in self._database.changes():
                        waiting = await self._questions.unanswered(self._name)
                        for number, text in waiting.items():
                            if number not in running:
                                # The mark tells the next process which ones died with this one.
                                await self._questions.take(number)
                                running[number] = tasks.create_task(answer_one(number, text))
                        for number in running.keys() - waiting.keys():
                            running.pop(number).cancel()  # the asker has gone, or it is answered
                except StorageError as error:  # a full disk passes
                    _log.error("peers.not_read", error=str(error))
                await asyncio.sleep(_POLL_INTERVAL)


class PeerTools(ToolSource):
    """The tool `ask_tendril` for the run of one question; left out while nobody can be asked."""

    def __init__(self, peers: PeerService, origin: Origin) -> None:
        self._peers, self._origin = peers, origin
        self._run: AgentLoop | None = None

    def begin(self, run: AgentLoop, key: str) -> None:
        """Bind the tool to a run, whose budget it uses, and its trace key; before the run asks."""
        self._run, self._origin = run, replace(self._origin, run=key)

    def tools(self) -> Iterable[Tool]:
        """Return the tool, whose description lists the tendrils that can be asked."""
        there = self._peers.others(self._origin)
        lines = [f"{name}: {escape_tags(about)}" for name, about in there.items()]
        return [describe(self.ask_tendril, "\n".join(lines))] if lines else []

    @tool(timeout=_MAX_WAIT, activity="asking {tendril}")
    async def ask_tendril(
        self,
        tendril: Annotated[str, Field(max_length=64, description="its name")],
        question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)],
    ) -> QuotingText:
        """Ask another tendril, which has tools that you have not. There are:"""
        assert self._run is not None, "begin comes first"
        try:
            answer = await self._peers.ask(tendril, question, self._origin, self._run.budget)
        except PeerRefused as error:
            raise ToolError(str(error)) from error
        self._run.charge(answer.iterations, answer.calls)
        if not answer.ok:
            raise ToolError(f"{tendril} has no answer: {answer.text}")
        shown = ShownText(answer.text, frozenset(answer.quotes), min(answer.quotes, default=0))
        return QuotingText(answer.text, [shown])


class OfferedTool(BaseModel):
    """A tool of a tendril that MCP clients may call, in the form of OpenAI's `tools` field.

    The web tendril, which serves `/mcp`, reads it in the status file and calls it by
    `PeerService.call`. `reads` and `timeout` (seconds) are those of `ToolOptions`.
    """

    function: dict[str, Any]
    reads: bool = False
    timeout: float = TOOL_TIMEOUT


def offered_tools(owners: Sequence[object]) -> list[OfferedTool]:
    """Return the tools of `owners` that MCP clients may call."""
    toolbox = Toolbox.from_owners(*owners).for_mcp()
    found = []
    for schema in toolbox.schemas():
        options = toolbox.options(schema["function"]["name"])
        timeout = options.timeout or TOOL_TIMEOUT
        found.append(OfferedTool(function=schema["function"], reads=options.reads, timeout=timeout))
    return found


async def run_offered(owners: Sequence[object], call: PeerQuestion) -> PeerAnswer:
    """Run the tool that a call names, if MCP clients may call it; return its result as JSON.

    It runs without any rights. Never raises: an answer that is not `ok` has the reason.
    """
    toolbox = Toolbox.from_owners(*owners).for_mcp()
    seconds = toolbox.options(call.tool).timeout or TOOL_TIMEOUT
    try:
        return PeerAnswer(json.dumps(await toolbox.run(call.tool, call.text, seconds)))
    except ToolError as error:
        return PeerAnswer(str(error), ok=False)


SayText = Callable[[Place, str, frozenset[int]], Awaitable[bool]]
"""Says a text, which quotes these lines of the log, at a place; returns False while that is not
possible."""


class TendrilOutbox:
    """The messages of the tendril `owner` to other tendrils, and theirs to it.

    A message is stored in the shared `database` until it has been said, so that neither side's
    restart loses it.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self.database, self._outbox = database, Outbox(database)
        self._owner = owner
        self._known = {*entry_points("terrarium.tendrils").names, owner}

    async def say(
        self, tendril: str, channel: str, text: str, *, key: str, quotes: Collection[int] = ()
    ) -> None:
        """Store a message that `tendril` is to say on "#channel" or "network/#channel".

        It is idempotent by `key`, and erased with whoever said one of the log lines `quotes` (those
        of a `TurnResult`). The message is said while that tendril runs; without a network, on the
        first one on which the tendril is in such a channel. Raises UnknownTendril, ValueError
        unless `channel` names a channel, and StorageError.
        """
        if tendril not in self._known:
            raise UnknownTendril(tendril, sorted(self._known))
        place = ChannelName.parse_channel(channel).on("")
        await self._outbox.put(f"{self._owner}/{key}", place, text, tendril=tendril, quotes=quotes)

    async def send(
        self,
        tendril: str,
        place: Place,
        text: str,
        *,
        key: str,
        quotes: Collection[int],
        now: datetime,
    ) -> datetime | None:
        """Store a message that a model has `tendril` say by itself, see `say`.

        Return None, or the time from which on the place may have another one: all models together
        may send it one in ten minutes, and twelve a day. Raises StorageError.
        """
        limits = PlaceLimits(MESSAGE_PAUSE, MESSAGES_A_DAY)
        message = OutgoingMessage(0, place, text, frozenset(quotes))
        key = f"{self._owner}/{key}"
        return await self._outbox.put_of_model(key, tendril, message, limits, now)

    async def waiting(self, tendril: str) -> Sequence[OutgoingMessage]:
        """Return the unsent messages for a tendril, oldest first. Raises StorageError."""
        return await self._outbox.list_unsent(tendril)

    async def deliver(self, say: SayText) -> None:
        """Say the messages for this tendril, oldest first, until cancelled.

        One that cannot be said is tried again each second, without holding up later ones.
        """
        while True:
            try:
                async for _ in self.database.changes():
                    while messages := await self._outbox.list_unsent(self._owner):
                        for message in messages:
                            # A crash between the two calls repeats a message rather than losing it.
                            if await say(message.place, message.text, message.quotes):
                                await self._outbox.mark_sent(message)
                        await asyncio.sleep(_RETRY_PAUSE)
            except StorageError as error:  # a full disk passes
                _log.error("outbox.not_delivered", error=str(error))
            await asyncio.sleep(_RETRY_PAUSE)
