"""The base of every tendril: it owns the client, the memory, the turn and the way to stop."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import structlog

from harnesses.core.addresses import with_agent_address
from harnesses.core.answer import NOTHING, Answer, answered
from harnesses.core.errors import root_cause
from harnesses.core.lane import Lane, Lanes
from harnesses.core.reloading import follow
from harnesses.core.status import Status
from harnesses.core.tracing import keep, trace_of
from harnesses.core.turn_request import Deliver, TurnRequest
from llm.accounts import ANSWER, Accounts
from llm.budget import PromptBudget
from llm.client import AgentClient, Call, Count, OnText, Priority
from llm.clock import Clock, SystemClock
from llm.compact_context import CompactContext
from llm.context import Context, Conversation
from llm.direct import direct_answer, quoted_answer
from llm.errors import Busy, ContextTooLong, ModelError, TimedOut, Unreachable
from llm.limits import UNASKED, Profile
from llm.log_questions import QuotedAnswer
from llm.log_view import LogView
from llm.memory.memory import RoomMemory, TendrilMemory
from llm.message import Message
from llm.meter import Meter
from llm.models import Models
from llm.outcome import Outcome
from llm.persona import Persona
from llm.process import told_to_stop
from llm.prompts import Asking, Prompt, Prompts
from llm.question import Question
from llm.reviewer import Reviewer
from llm.sections import Section
from llm.settings import AgentSettings
from llm.timetable import parse_zone
from llm.tools import Rights
from llm.trace import Trace
from llm.turn import Turn
from llm.worker import Handler, Worker
from storage.config import Config, load
from storage.conversations import Conversations, Window
from storage.database import Database
from storage.jobs import Jobs
from storage.runs import Runs
from storage.skills import SkillTable

FAILED = "Something went wrong on my side; it has been noted. Please try again."

COMPACTED = 4
"""Turns that are shown to the model after a conversation was made compact."""

_log = structlog.get_logger()


class Harness(ABC):
    """A tendril: its `name`, a `persona.md` beside its module, `@tool` methods, and `serve`.

    `serve` turns the events of its medium into `await self.turn(...)`. While it runs, `client`,
    `database`, `conversations`, `memory`, `jobs` and `runs` are open, `models` knows what the agent
    server has, `accounts` what was spent, and `status` tells others how it is.
    """

    name: ClassVar[str]

    client: AgentClient
    models: Models
    accounts: Accounts
    database: Database
    conversations: Conversations
    memory: TendrilMemory
    jobs: Jobs
    runs: Runs
    skills: SkillTable

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.prompts = Prompts()
        self.configure(config)
        self.clock = clock or SystemClock()
        self.status = Status(config.data, self.name)
        self._lanes: Lanes[Answer] = Lanes()

    def configure(self, config: Config) -> None:
        """Go by another configuration from now on; the agent server stays the one it was. Raises
        ConfigError, and then everything is as before."""
        agent = config.section(AgentSettings)
        folders = (config.data / agent.personas_dir, config.data / agent.skills_dir)
        self.prompts.read(self._persona_file(agent), *folders)
        self.config, self.agent = config, agent

    def reload(self) -> str:
        """Read all files anew; a sentence for people. Raises ConfigError, with all as before."""
        path = self.config.path
        self.adopt(with_agent_address(load(path, self.config.data)) if path else self.config)
        return f"Read anew. {self.prompts.complaint()}".rstrip()

    def adopt(self, config: Config) -> None:
        """Go by another configuration while running. Raises ConfigError, with all as before."""
        self.configure(config)
        self.client.configure(self.agent)

    def _followed(self) -> Iterator[Path]:
        """Whatever is to be read again when it changes."""
        if self.config.path:
            yield self.config.path
        yield from self.prompts.files()

    @abstractmethod
    async def serve(self) -> None:
        """Do the tendril's work; call `self.status.ready()` when people can use it."""

    def database_path(self) -> Path:
        """The tendril's own SQLite file."""
        return self.config.data / f"{self.name}.db"

    async def run(self) -> None:
        """Serve until told to stop, or until `serve` returns. Raises what `serve` raises."""
        self.status.starting()
        try:
            async with self._opened(), asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(self.status.renew()),
                    tasks.create_task(self._worker.run()),
                    tasks.create_task(keep(self.runs, lambda: self.agent.trace_days, self.clock)),
                    tasks.create_task(follow(self._followed, self.reload)),
                ]
                serving = tasks.create_task(self.serve())
                stopping = tasks.create_task(told_to_stop())
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for task in (*beside, serving, stopping):
                    task.cancel()
        except ExceptionGroup as group:
            raise root_cause(group) from group
        finally:
            self.status.stopped()

    def handlers(self) -> Mapping[str, Handler]:
        """What the worker does, by kind of job."""
        return self.memory.handlers()

    async def turn(
        self,
        conversation: str,
        *,
        who: str,
        text: str,
        person: str = "",
        room: str = "",
        view: LogView | None = None,
        tools: Sequence[object] = (),
        rights: Rights = frozenset,
        values: Mapping[str, str] | None = None,
        priority: Priority = "interactive",
        on_text: OnText | None = None,
        persona: str | None = None,
        model: str = "",
        joins: bool = False,
        keeps: bool = True,
        deliver: Deliver | None = None,
        profile: Profile = "standard",
        private: bool = False,
        review: bool = False,
        run: str = "",
        wants_status: bool = False,
    ) -> Answer:
        """Answer `text`, which `who` asked in `conversation`; one at a time in each. Never raises.

        The arguments are those of `TurnRequest`.
        """
        request = TurnRequest(
            conversation=conversation,
            who=who,
            text=text,
            person=person,
            room=room,
            view=view,
            tools=tools,
            rights=rights,
            values=values or {},
            priority=priority,
            on_text=on_text,
            persona=persona,
            model=model,
            joins=joins,
            keeps=keeps,
            deliver=deliver,
            profile=profile,
            private=private,
            review=review,
            run=run,
            wants_status=wants_status,
        )
        lane = self._lanes.of(conversation)
        if not await lane.enter(request.question(), joins and keeps):
            return NOTHING
        memory = self.memory.of(room or conversation, conversation, person or who)
        work = partial(self.safely, partial(self._answer, request, lane, memory))
        return await answered(lane, work, memory, deliver, keeps=keeps)

    def stop(self, conversation: str) -> bool:
        """End what is being answered in a conversation and what waits there; whether there was
        anything. Nothing of it is remembered."""
        return self._lanes.stop(conversation)

    async def clear(self, conversation: str) -> int:
        """Forget a conversation, what is being answered in it included; how many turns it had."""
        lane = self._lanes.of(conversation)
        lane.discarded = True
        async with lane.memory:
            await self.accounts.forget(f"{self.name}/{conversation}")
            await self.runs.clear(conversation)
            await self.skills.forget(conversation)
            room = await self.conversations.room(conversation)
            turns = await self.conversations.clear(conversation)
            await self.memory.cleared(conversation, room)
            return turns

    async def compact(self, conversation: str) -> int:
        """Show the model only the newest turns of a conversation from now on, and the log lines
        anew; how many turns are left out. These are summed up soon, if the model is to do that."""
        lane = self._lanes.of(conversation)
        if not await lane.enter(Question("", ""), joins=False):
            return 0
        try:
            window = await self.conversations.window(conversation)
            turns = await self.conversations.turns(conversation, start=window.turn_start)
            if len(turns) > COMPACTED:
                window = Window(0, turns[-COMPACTED].id)
                await self.conversations.move_window(conversation, window)
                room = await self.conversations.room(conversation)
                await self.memory.compact(room, turns[-COMPACTED - 1].id)
            return max(0, len(turns) - COMPACTED)
        finally:
            lane.leave()

    @property
    def questions(self) -> int:
        """How many are being answered or wait for it."""
        return len(self._lanes)

    async def safely(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer, or a sentence for the person in place of whatever went wrong."""
        try:
            return await work()
        except ModelError as error:
            _log.warning("turn.no_answer", reason=type(error).__name__, error=str(error))
            return Answer(error.sentence, ok=False)
        except Exception:  # noqa: BLE001 -- the turn boundary: nobody's traceback reaches a person
            _log.exception("turn.failed", tendril=self.name)
            return Answer(FAILED, ok=False)

    async def _answer(
        self, request: TurnRequest, lane: Lane[Answer], memory: RoomMemory
    ) -> Answer:
        """Answer a question that has its turn: without the model where that settles it."""
        persona = self.prompts.personas.of(request.persona)
        call = await self._call(request, persona, memory.room)
        budget = await self._budget(request, call)
        if budget.is_small and request.profile in UNASKED:
            return Answer("")  # it cannot judge whether there is something worth saying
        prompt = await self.prompts.of(self.skills, self._asking(request, persona, memory), budget)
        view = await request.view.settled() if request.view else None
        quoted = await quoted_answer(view, request.text) if view and request.is_by_person else None
        context = await self._context(request, view, prompt, quoted, budget, memory)
        trace = trace_of(request, call, self.agent, self.runs, self.clock, lane.beside)
        async with trace:
            direct = direct_answer(request.text, prompt.worked_out, quoted, budget)
            if direct is not None:
                outcome = Outcome.without_model(direct)
            else:
                await context.load()
                turn = await self._turn(request, call, prompt, lane, trace)
                outcome = await self._asked(turn, context, quoted)
                outcome = await self._reviewed(request, turn.call, outcome)
                if budget.is_small and quoted:
                    outcome = outcome.ending_with(quoted.lines[:1])
            trace.outcome = outcome
        _log_outcome(call, outcome)
        used = partial(self.prompts.used, self.skills, memory.room, prompt, well=not outcome.forced)
        return Answer.of(outcome, partial(context.remember, outcome.messages), used)

    async def _call(self, request: TurnRequest, persona: Persona, room: str) -> Call:
        """What goes with every request of the turn; the model is the wanted one or the persona's,
        if the server has it."""
        named = self.models.named
        return Call(
            f"{self.name}/{request.conversation}",
            request.priority,
            await named(request.model) or await named(persona.model),
            purpose=ANSWER if request.is_by_person else request.profile,
            room=room,
            temperature=persona.temperature,
            max_tokens=persona.max_tokens,
        )

    async def _budget(self, request: TurnRequest, call: Call) -> PromptBudget:
        """How large the prompt may be. What is written for a job needs all its material."""
        budget = PromptBudget.of(await self.models.card(call.model))
        if request.profile == "job":
            return replace(budget, tokens=None, is_small=False, is_tiny=False)
        return budget

    def _asking(self, request: TurnRequest, persona: Persona, memory: RoomMemory) -> Asking:
        """The request as prompts see it, with the tools that the model may be offered."""
        return Asking(
            request.text,
            memory.room,
            persona,
            request.values,
            (self, *request.tools, *memory.tools(request.keeps)),
            request.rights,
            request.wants_status,
        )

    async def _context(
        self,
        request: TurnRequest,
        view: LogView | None,
        prompt: Prompt,
        quoted: QuotedAnswer | None,
        budget: PromptBudget,
        memory: RoomMemory,
    ) -> Context | CompactContext:
        """The prompt's layout: for a small model the compact one."""
        conversation = Conversation(
            self.conversations, request.conversation, memory.room, memory.person
        )
        found = quoted.events if quoted else ()
        if budget.is_small:
            return CompactContext(
                conversation,
                prompt.system,
                request.question(),
                view,
                found,
                notes=prompt.hints,
                budget=budget,
                now=self.clock.now,
            )
        stable, own = await memory.sections(request.text)
        return Context(
            conversation,
            prompt.system,
            request.question(),
            view,
            found=found,
            stable=stable,
            beside=(*own, *prompt.beside, self._now_section()),
            budget=budget.tokens,
            now=self.clock.now,
        )

    async def _turn(
        self, request: TurnRequest, call: Call, prompt: Prompt, lane: Lane[Answer], trace: Trace
    ) -> Turn:
        """The run of the model that answers."""
        return Turn(
            self.client,
            self.agent,
            prompt.toolbox,
            call,
            None if self._review_over(request) is not None else request.on_text,
            lane.joining,
            profile=request.profile,
            smart=await self.models.smart(),
            trace=trace,
        )

    async def _asked(
        self, turn: Turn, context: Context | CompactContext, quoted: QuotedAnswer | None
    ) -> Outcome:
        """Run the turn. While the model is away the lines that answer the question are the answer.
        Raises ModelError."""
        reserve = turn.call.max_tokens or self.agent.max_tokens

        async def fit(steps: Sequence[Message]) -> list[Message]:
            def count(messages: Sequence[Message]) -> Awaitable[Count]:
                return self._meter.count(turn.call, messages, turn.schemas, reserve)

            return await context.fit(steps, count, reserve)

        try:
            return await turn.run(fit)
        except ContextTooLong:
            self._meter.forget(turn.call)
            raise
        except (Unreachable, Busy, TimedOut) as error:
            if quoted is None or not quoted.events:
                raise
            _log.warning("turn.quoted_only", reason=type(error).__name__, error=str(error))
            return Outcome.without_model(quoted.text)

    def _review_over(self, request: TurnRequest) -> int | None:
        """The characters from which on an answer gets a second look; None: none does."""
        return 0 if request.review else self.agent.review_over or None

    async def _reviewed(self, request: TurnRequest, call: Call, outcome: Outcome) -> Outcome:
        """The outcome, or a better one if it is long enough for a second look."""
        over = self._review_over(request)
        if over is None or len(outcome.text) <= over:
            return outcome
        return await Reviewer(self.client, call).reviewed(request.text, outcome)

    def _now_section(self) -> Section:
        """The date and time of whoever asks, for the part of the prompt beside the question."""
        local = self.clock.now().astimezone(parse_zone(self.agent.timezone))
        return Section("now", f"{local:%A %Y-%m-%d %H:%M} {self.agent.timezone}", 60)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        async with (
            Database.opened(self.database_path()) as self.database,
            Accounts.opened(self.database) as self.accounts,
            AgentClient.opened(self.agent, self.accounts.spend) as self.client,
        ):
            self.status.count_tokens(self.accounts.today)
            self.conversations = Conversations(self.database)
            self.skills = SkillTable(self.database)
            self.jobs = Jobs(self.database, self.clock.now)
            self.runs = Runs(self.database)
            await self.runs.interrupt()
            self._meter = Meter(self.client)
            self.models = Models(self.client, lambda: self.agent.model)
            parts = (self.database, self.jobs, self.client, self.models, self.clock)
            self.memory = TendrilMemory(self.name, *parts, self.config)
            await self.memory.soon()
            lock = self.config.data / "run" / f"{self.name}.lock"
            self._worker = Worker(self.jobs, self.handlers(), self.clock, lock)
            yield

    def _persona_file(self, agent: AgentSettings) -> Path:
        own = Path(inspect.getfile(type(self))).with_name("persona.md")
        return agent.personas.get(self.name, own)


def _log_outcome(call: Call, outcome: Outcome) -> None:
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
