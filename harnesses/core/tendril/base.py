"""The base class of every tendril: its parts, its process, and what it overrides for its medium."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, TypeVar
from uuid import uuid4

import structlog

from harnesses.core.services.peers import (
    EMPTY_SCOPE,
    Origin,
    PeerAnswer,
    PeerQuestion,
    offered_tools,
    run_offered,
)
from harnesses.core.services.question_tools import Door, question_tools
from harnesses.core.services.reminders import Requester
from harnesses.core.services.shared_log import (
    LoggedLine,
    SignalKind,
    conversation_name,
    is_public,
    room_name,
)
from harnesses.core.tendril.configuration import Configuration
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.services import MediumServices
from harnesses.core.tendril.status import ProcessState, StatusFile
from harnesses.core.tendril.turn import TurnRequest, TurnResult
from harnesses.core.tendril.turns import Turns
from llm.scheduling.worker import Handler, Worker
from storage.chat_log.event import Place, Scope
from storage.queues.reminders import Reminder
from terrarium.clock import Clock
from terrarium.config import Config, ConfigError
from terrarium.supervision import ContainedTasks, root_cause, serve_until_stopped

_FINISHING_TIME = 2.0  # seconds that answers have when the process is told to stop
_REMINDER_RETRY = timedelta(seconds=15)  # retry interval of a reminder that could not be said

T = TypeVar("T")

_log = structlog.get_logger()


class Part(Generic[T]):
    """An attribute that every tendril has; a subclass that assigns it by accident is told so."""

    def __init__(self, find: Callable[[Tendril], T]) -> None:
        self._find = find

    def __set_name__(self, owner: type[Tendril], name: str) -> None:
        self._name = name

    def __get__(self, tendril: Tendril, owner: type[Tendril]) -> T:
        return self._find(tendril)

    def __set__(self, tendril: Tendril, value: Never) -> None:
        raise AttributeError(f"self.{self._name} is a part of every tendril; choose another name")


class Tendril(ABC):
    """The base class of a tendril: a subclass has a `name`, `@tool` methods, `serve`, and a
    `persona.md` next to its module or that of its base class.

    `serve` turns the events of the medium into `await self.turn(TurnRequest(...))`. `config` (with
    its table `[agent]` as `agent`), `prompts`, `clock` and `status`, which reports the state of the
    process to others, exist from the start. The other parts are open while the tendril runs: its
    `resources` (`client`, `database`, `conversations`, `memory`, `jobs`, ...), the services for its
    medium (`log`, `outbox`, `peers`, `remind`, `research`, `privacy`, `metrics`), and its `turns`.

    A tendril that overrides `say` delivers the messages that others put into its outbox, and its
    reminders. A tendril that sets `asked_about`, its subject in a few words for the models of
    others, can be asked by them. With `uses_log_database` its own tables are in the database of the
    log. Unless it `learns`, the model makes no memories of what is said to it.
    """

    name: ClassVar[str]
    asked_about: ClassVar[str] = ""
    uses_log_database: ClassVar[bool] = False
    learns: ClassVar[bool] = True

    resources: Resources
    turns: Turns
    _configuration: Configuration
    _clock: Clock
    _status: StatusFile
    medium_services: MediumServices

    config = Part(lambda self: self._configuration.config)
    agent = Part(lambda self: self._configuration.agent)
    prompts = Part(lambda self: self._configuration.prompts)
    clock = Part(lambda self: self._clock)
    status = Part(lambda self: self._status)

    accounting = Part(lambda self: self.resources.accounting)
    client = Part(lambda self: self.resources.client)
    conversations = Part(lambda self: self.resources.conversations)
    database = Part(lambda self: self.resources.database)
    jobs = Part(lambda self: self.resources.jobs)
    memory = Part(lambda self: self.resources.memory)
    reader = Part(lambda self: self.resources.reader)
    skills = Part(lambda self: self.resources.skills)

    log = Part(lambda self: self.medium_services.log)
    metrics = Part(lambda self: self.medium_services.metrics)
    outbox = Part(lambda self: self.medium_services.outbox)
    peers = Part(lambda self: self.medium_services.peers)
    privacy = Part(lambda self: self.medium_services.privacy)
    remind = Part(lambda self: self.medium_services.remind)
    research = Part(lambda self: self.medium_services.research)

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a name that hides a part of every tendril. Raises TypeError."""
        super().__init_subclass__(**options)
        for name in vars(cls):
            if isinstance(inspect.getattr_static(Tendril, name, None), Part):
                raise TypeError(
                    f"{cls.__name__}.{name}: self.{name} is a part of every tendril; choose another"
                    " name"
                )

    if not TYPE_CHECKING:  # or type checkers would take any attribute for known

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute. Raises AttributeError for the name of a tool, as of any method
            that is async."""
            if inspect.iscoroutinefunction(inspect.getattr_static(type(self), name, None)):
                raise AttributeError(
                    f"self.{name} is a method of {type(self).__name__}; choose another name"
                )
            super().__setattr__(name, value)

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        kinds = [each for each in type(self).__mro__ if issubclass(each, Tendril)]
        files = [Path(inspect.getfile(each)).with_name("persona.md") for each in kinds]
        persona = next(filter(Path.is_file, files), files[0])
        self._configuration = Configuration(self.name, persona, config)
        self._clock = clock or Clock()
        self._spawned = ContainedTasks()
        self._status = StatusFile(config.data, self.name, self.asked_about)

    def __repr__(self) -> str:
        pending = self.turns.pending if "turns" in vars(self) else 0  # before it runs
        return f"<{type(self).__name__} {self.name}, {pending} pending>"

    # What a tendril overrides.

    @abstractmethod
    async def serve(self) -> None:
        """Do the work of the tendril; call `self.status.ready()` once it can be used."""

    @property
    def shares_work(self) -> bool:
        """True if several processes of this tendril may run on one data folder."""
        return False

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return more coroutines to run concurrently with `serve`; they are cancelled at its
        end."""
        return ()

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of background jobs, by the kind of job."""
        return {**self.memory.handlers(), **self.research.handlers()}

    def mcp_owners(self, scope: Scope) -> Sequence[object]:
        """Return the objects whose tools marked `mcp` are offered to MCP clients; by default the
        tendril itself.

        `scope` is the part of the log that the calling client may read.
        """
        return (self,)

    async def say(self, place: Place, text: str) -> bool:
        """Say a text at a place of this medium; return False if that is not possible at the moment.

        Override it in a tendril that can speak without being asked.
        """
        return False

    async def say_quoting(self, place: Place, text: str, quotes: frozenset[int]) -> bool:
        """Say a text of the outbox, which quotes these lines of the log (by id), as `say` does.

        Override it to log the text with its `quotes`, so that it is erased with those lines.
        """
        return await self.say(place, text)

    async def say_reminder(self, reminder: Reminder, text: str) -> timedelta | None:
        """Say a reminder at its place; return None, or how long to wait before the next attempt if
        it could not be said.

        Override it if private reminders cannot be delivered by `say`.
        """
        address = "" if reminder.private else f"{reminder.owner.nick}: "
        return None if await self.say(reminder.place, f"{address}{text}") else _REMINDER_RETRY

    async def until_speaking(self) -> None:
        """Wait until messages can be said; by default until the tendril is ready."""
        await self.status.became_ready.wait()

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the parts of the tendril; they are closed on leaving. Raises StorageError and
        ConfigError.

        Override it to open more, which the base class then has to be entered for first.
        """
        async with (
            Resources.open(
                self.name,
                self._configuration,
                self.status,
                self.clock,
                uses_log_database=self.uses_log_database,
                learns=self.learns,
            ) as self.resources,
            MediumServices.open(
                self.resources, self.say_reminder, speaks=self._speaks
            ) as self.medium_services,
        ):
            self.turns = Turns(
                self.resources,
                self.log.chat_log,
                self.peers,
                self,
                lambda: self.tools_for(Door(log=self.log.tools_within(EMPTY_SCOPE))),
            )
            yield

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` in the background until the tendril stops, as for one line of one person. Its
        errors are logged, and end nothing else."""
        self._spawned.spawn(work)

    # Questions.

    async def turn(self, request: TurnRequest) -> TurnResult:
        """Answer a question, one at a time per conversation; return an empty result if it was
        stopped or joined another. Never raises, except when cancelled."""
        return await self.turns.take(request)

    async def clear(self, conversation: str) -> int:
        """Delete a conversation; return how many turns it had. A turn that is running goes on, but
        is not remembered. Raises StorageError."""
        return await self.turns.clear(conversation)

    def stop(self, conversation: str) -> bool:
        """Cancel the running turn of a conversation and drop its queued questions, without
        remembering any of them; return False if there were none."""
        return self.turns.stop(conversation)

    def request(self, line: LoggedLine, text: str = "") -> TurnRequest:
        """Create the request for `turn` that answers a logged line, with the log of its room.

        Pass `text` if the question is only a part of the line, as after "Terra:". Adapt the request
        with `dataclasses.replace`.
        """
        door = Door(
            log=self.log.tools(line.place, before=line),
            requester=self.requester(line) if self._speaks else None,
        )
        place = line.place
        return TurnRequest(
            conversation=conversation_name(place, line.who, line.thread),
            who=line.who.nick,
            text=text or line.text,
            person=line.who.key(str.lower),
            room=room_name(place),
            log_window=self.log.window(line, last=self.agent.max_context_messages),
            tools=self.tools_for(door),
            values={"room": place.channel},
            private=not is_public(place),
            keeps=line.is_logged,
            origin=Origin(place.network, line.who, Scope.from_places(place)),
        )

    def request_from_peer(self, question: PeerQuestion) -> TurnRequest:
        """Create the request for `turn` that answers a question from another tendril.

        The person who asked may read the same part of the log as in the place where they asked, and
        has no rights here. Nothing is remembered. Override it to grant some people more, or to
        withhold tools from other tendrils.
        """
        # Each question has a conversation of its own, so that they are answered concurrently and no
        # two people share a context.
        origin = question.origin
        asked = hashlib.sha256(question.text.encode()).hexdigest()[:16]
        return TurnRequest(
            conversation=f"asked/{uuid4().hex}",
            who=origin.who.nick,
            text=question.text,
            person=f"{origin.network}/{origin.who.key(str.lower)}",
            tools=self.tools_for(Door(log=self.log.tools_within(origin.scope))),
            values={"room": origin.path[-1]},
            priority=origin.priority,
            trigger="asked",
            private=True,
            keeps=False,
            # The caller's run repeats its questions after a crash. The same key finds the effects
            # that our run has recorded, so that they are not repeated (see `llm.agent.trace`).
            run=f"{origin.run}/{asked}" if origin.run else "",
            origin=origin,
        )

    async def signal(self, kind: SignalKind, place: Place, about: str) -> None:
        """Give the tendril of a public room, which may be another one, a reason to speak there:
        `about` says in words of yours what has happened. Whether it wakes the model is decided by
        what its kind weighs (`[agent] attention`). Raises StorageError."""
        await self.log.signal(kind, place, about)

    def requester(self, line: LoggedLine) -> Requester:
        """Return the `Requester` for a line: its author, asking for reminders at its place."""
        return Requester.from_line(line)

    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question that comes through a door."""
        return question_tools(door, self.remind, self.skills, self.clock.now, self.agent.zone)

    @property
    def _speaks(self) -> bool:
        """True if the tendril can speak without being asked: it overrides `say`."""
        return type(self).say is not Tendril.say

    # The process.

    async def run(self) -> None:
        """Serve until told to stop (see `told_to_stop`), or until `serve` returns. Raises what
        `serve` raises."""
        self.status.report(ProcessState.STARTING)
        try:
            async with self.open_resources():
                self.status.tokens = self.accounting.today_by_purpose
                self.status.mcp_troubles = self.prompts.mcp_servers.troubles
                # The status file lists the tools for all clients alike, so no scope applies to the
                # list. A call is run with the scope of its caller.
                tools = offered_tools(self.mcp_owners(EMPTY_SCOPE))
                self.status.mcp_tools = [each.model_dump() for each in tools]
                lock = self.config.data / "run" / f"{self.name}.lock"
                self._worker = Worker(self.jobs, self.handlers(), self.clock, lock)
                await serve_until_stopped(
                    self.serve(),
                    *self.medium_services.background(self.resources, self.turns),
                    self._worker.run(),
                    self._spawned.run(),
                    self._follow_files(),
                    self._speak(),
                    self._answer_peers(),
                    *self.background(),
                    finish=lambda: self.turns.close(_FINISHING_TIME),
                )
        except ExceptionGroup as group:  # of our tasks, or of those of a resource
            raise root_cause(group) from group
        finally:
            self.status.report(ProcessState.STOPPED)

    def apply_config(self, config: Config) -> None:
        """Use another configuration from now on, except for the address and key of the agent
        server. Raises ConfigError; the previous configuration then stays in use."""
        self._configuration.use(config)
        self.client.settings = self.agent

    def reload(self) -> str:
        """Read the configuration, the personas and the skills again; return the outcome as a
        sentence. Raises ConfigError; the previous configuration then stays in use."""
        self.apply_config(self._configuration.read_file())
        return f"Reloaded. {self.prompts.error_summary()}".rstrip()

    @property
    def disk_trouble(self) -> str:
        """Why nothing can be written at the moment, "" if it can."""
        return self.medium_services.disk_trouble(self.status)

    async def _follow_files(self) -> None:
        """Reload when a file changes or SIGHUP arrives, until cancelled. If that fails, the
        previous configuration stays in use and the reason is logged."""
        async with aclosing(self._configuration.changes()) as changed:
            async for _ in changed:
                try:
                    _log.info("config.changed", outcome=self.reload())
                except ConfigError as error:
                    _log.warning("config.kept", reason=str(error))

    async def _speak(self) -> None:
        """Deliver the messages of the outbox and the due reminders, until cancelled; return at once
        if `say` is not overridden: then the messages stay queued."""
        if not self._speaks:
            return
        await self.until_speaking()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.outbox.deliver(self.say_quoting))
            tasks.create_task(self.remind.run())

    async def _answer_peers(self) -> None:
        """Answer the questions of other tendrils, and run the tools that MCP clients call, from
        the time this tendril is ready until cancelled."""
        turns = self.turns

        async def answer(question: PeerQuestion) -> PeerAnswer:
            # Only `PeerService.ask` checks whether a tendril takes questions; `call` does not.
            if question.tool:
                return await run_offered(self.mcp_owners(question.origin.scope), question)
            if not self.asked_about:
                return PeerAnswer(f"{self.name} takes no questions", ok=False)
            said = await turns.catch_errors(lambda: turns.take(self.request_from_peer(question)))
            return PeerAnswer(said.text, said.ok, said.iterations, said.calls, sorted(said.quotes))

        if self.asked_about or self.status.mcp_tools:
            await self.status.became_ready.wait()
            await self.peers.run(answer)
