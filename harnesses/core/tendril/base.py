"""The base of every tendril: it owns the client, the memory, the turn and the way to stop."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

import structlog

from harnesses.core.addresses import with_agent_address
from harnesses.core.errors import root_cause
from harnesses.core.tendril.conversation_queue import ConversationQueues
from harnesses.core.tendril.reloading import follow
from harnesses.core.tendril.responder import Responder
from harnesses.core.tendril.status import StatusFile
from harnesses.core.tendril.tracing import expire_runs
from harnesses.core.tendril.turn_request import TurnRequest
from harnesses.core.tendril.turn_result import NO_REPLY, TurnResult, run_turn
from llm.client.client import AgentClient
from llm.client.model_catalog import ModelCatalog
from llm.client.settings import AgentSettings
from llm.client.token_usage import TokenAccounting
from llm.memory.memory import TendrilMemory
from llm.messages.errors import ModelError
from llm.messages.user_message import Question
from llm.prompt.builder import PromptBuilder
from llm.scheduling.worker import Handler, Worker
from storage.db.database import Database
from storage.memory.conversations import Conversations, PromptWindow
from storage.memory.taught_skills import SkillTable
from storage.queues.jobs import Jobs
from storage.runs.runs import Runs
from terrarium.clock import Clock, SystemClock
from terrarium.config import Config, load
from terrarium.supervision import told_to_stop

FAILED = "Something went wrong on my side; it has been noted. Please try again."

COMPACTED = 4
"""Turns that are shown to the model after a conversation was made compact."""

_log = structlog.get_logger()


class Tendril(ABC):
    """A tendril: its `name`, a `persona.md` beside its module, `@tool` methods, and `serve`.

    `serve` turns the events of its medium into `await self.turn(TurnRequest(...))`. While it runs,
    `client`, `database`, `conversations`, `memory`, `jobs` and `runs` are open, `catalog` knows
    what the agent server has, `accounting` what was spent, and `status` tells others how it is.
    """

    name: ClassVar[str]

    client: AgentClient
    catalog: ModelCatalog
    accounting: TokenAccounting
    database: Database
    conversations: Conversations
    memory: TendrilMemory
    jobs: Jobs
    runs: Runs
    skills: SkillTable

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.prompts = PromptBuilder()
        self.configure(config)
        self.clock = clock or SystemClock()
        self.status = StatusFile(config.data, self.name)
        self._queues: ConversationQueues[TurnResult] = ConversationQueues()

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
        self.apply_config(with_agent_address(load(path, self.config.data)) if path else self.config)
        return f"Read anew. {self.prompts.complaint()}".rstrip()

    def apply_config(self, config: Config) -> None:
        """Go by another configuration while running. Raises ConfigError, with all as before."""
        self.configure(config)
        self.client.configure(self.agent)

    def _watched_files(self) -> Iterator[Path]:
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
            async with self._open(), asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(self.status.renew()),
                    tasks.create_task(self._worker.run()),
                    tasks.create_task(
                        expire_runs(self.runs, lambda: self.agent.trace_days, self.clock)
                    ),
                    tasks.create_task(follow(self._watched_files, self.reload)),
                ]
                serving = tasks.create_task(self.serve())
                stopping = tasks.create_task(told_to_stop())
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for task in (*beside, serving, stopping):
                    task.cancel()
        except ExceptionGroup as group:
            raise root_cause(group) from group
        finally:
            self.status.mark_stopped()

    def handlers(self) -> Mapping[str, Handler]:
        """What the worker does, by kind of job."""
        return self.memory.handlers()

    async def turn(self, request: TurnRequest) -> TurnResult:
        """Answer a question; one at a time in each conversation. Never raises."""
        conversation = request.conversation
        queue = self._queues.for_conversation(conversation)
        if not await queue.enter(request.question(), request.joins and request.keeps):
            return NO_REPLY
        memory = self.memory.for_room(
            request.room or conversation, conversation, request.person or request.who
        )
        work = partial(self.catch_errors, partial(self._responder.answer, request, queue, memory))
        return await run_turn(queue, work, memory, request.deliver, keeps=request.keeps)

    def stop(self, conversation: str) -> bool:
        """End what is being answered in a conversation and what waits there; whether there was
        anything. Nothing of it is remembered."""
        return self._queues.stop(conversation)

    async def clear(self, conversation: str) -> int:
        """Forget a conversation, what is being answered in it included; how many turns it had."""
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
        """Show the model only the newest turns of a conversation from now on, and the log lines
        anew; how many turns are left out. These are summed up soon, if the model is to do that."""
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

    @property
    def pending(self) -> int:
        """How many are being answered or wait for it."""
        return len(self._queues)

    async def catch_errors(self, work: Callable[[], Awaitable[TurnResult]]) -> TurnResult:
        """The answer, or a sentence for the person in place of whatever went wrong."""
        try:
            return await work()
        except ModelError as error:
            _log.warning("turn.no_answer", reason=type(error).__name__, error=str(error))
            return TurnResult(error.sentence, ok=False)
        except Exception:  # noqa: BLE001 -- the turn boundary: nobody's traceback reaches a person
            _log.exception("turn.failed", tendril=self.name)
            return TurnResult(FAILED, ok=False)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with (
            Database.open(self.database_path()) as self.database,
            TokenAccounting.open(self.database) as self.accounting,
            AgentClient.open(self.agent, self.accounting.record) as self.client,
        ):
            self.status.count_tokens(self.accounting.today)
            self.conversations = Conversations(self.database)
            self.skills = SkillTable(self.database)
            self.jobs = Jobs(self.database, self.clock.now)
            self.runs = Runs(self.database)
            await self.runs.interrupt()
            self.catalog = ModelCatalog(self.client, lambda: self.agent.model)
            parts = (self.database, self.jobs, self.client, self.catalog, self.clock)
            self.memory = TendrilMemory(self.name, *parts, self.config)
            await self.memory.schedule_check()
            self._responder = Responder(
                tendril=self,
                name=self.name,
                client=self.client,
                catalog=self.catalog,
                prompts=self.prompts,
                skills=self.skills,
                conversations=self.conversations,
                runs=self.runs,
                clock=self.clock,
                settings=lambda: self.agent,
            )
            lock = self.config.data / "run" / f"{self.name}.lock"
            self._worker = Worker(self.jobs, self.handlers(), self.clock, lock)
            yield

    def _persona_file(self, agent: AgentSettings) -> Path:
        own = Path(inspect.getfile(type(self))).with_name("persona.md")
        return agent.personas.get(self.name, own)
