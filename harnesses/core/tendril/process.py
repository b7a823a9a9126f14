"""The process of a tendril: configuration, background tasks, startup and shutdown."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from harnesses.core.addresses import with_agent_address
from harnesses.core.errors import root_cause
from harnesses.core.services.heartbeat import send_heartbeats
from harnesses.core.tendril.medium import RESERVED, TendrilMedium
from harnesses.core.tendril.status import StatusFile
from llm.agent.trace import expire_runs
from llm.client.response import Heartbeat
from llm.client.settings import AgentSettings
from llm.prompt.builder import PromptBuilder
from llm.scheduling.worker import Handler, Worker
from llm.tools.toolbox import Toolbox
from terrarium.clock import Clock, SystemClock
from terrarium.config import Config, ConfigError, load
from terrarium.file_watcher import changes
from terrarium.supervision import told_to_stop

_log = structlog.get_logger()


class TendrilProcess(TendrilMedium, ABC):
    """Runs `serve` and the background tasks that every tendril has, until told to stop.

    `status` is the status file of the process. While it runs, the attributes in `RESERVED`
    (`client`, `log`, ...) cannot be reassigned, so that no subclass overwrites one by accident.
    """

    _is_open = False

    if not TYPE_CHECKING:  # with a `__setattr__`, a type checker accepts any attribute name

        def __setattr__(self, name: str, value: object) -> None:
            if self._is_open and name in RESERVED:
                raise AttributeError(f"self.{name} is a part of every tendril; choose another name")
            super().__setattr__(name, value)

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.prompts = PromptBuilder()
        self.configure(config)
        self.clock = clock or SystemClock()
        self.status = StatusFile(config.data, self.name, self.asked_about)

    @property
    def shares_work(self) -> bool:
        """True if several processes of this tendril may run on one data folder."""
        return False

    @abstractmethod
    async def serve(self) -> None:
        """Do the work of the tendril; call `self.status.ready()` once it can be used."""

    async def run(self) -> None:
        """Serve until told to stop (see `told_to_stop`), or until `serve` returns. Raises what
        `serve` raises."""
        self.status.starting()
        try:
            async with self.open_resources(), asyncio.TaskGroup() as tasks:
                self._is_open = True
                self.status.count_tokens(self.accounting.today_by_purpose)
                self.status.watch_mcp_servers(self.prompts.mcp_servers.troubles)
                lock = self.config.data / "run" / f"{self.name}.lock"
                self._worker = Worker(self.jobs, self.handlers(), self.clock, lock)
                background = [
                    tasks.create_task(self.status.renew()),
                    tasks.create_task(self.access.watch(self.agent.model)),
                    tasks.create_task(self._worker.run()),
                    tasks.create_task(
                        expire_runs(self.runs, lambda: self.agent.trace_days, self.clock)
                    ),
                    tasks.create_task(self.privacy.run()),
                    tasks.create_task(self._follow_files()),
                    tasks.create_task(self.speak()),
                    tasks.create_task(self._report()),
                    tasks.create_task(self.answer_peers()),
                    *map(tasks.create_task, self.background()),
                    tasks.create_task(self.prompts.mcp_servers.run()),
                ]
                serving = tasks.create_task(self.serve())
                stopping = tasks.create_task(told_to_stop())
                # An error of any task makes the group cancel this wait and all other tasks.
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                # The background tasks never end by themselves, so the group would not end either.
                # All have ended before `open_resources` closes what they use.
                for task in (*background, serving, stopping):
                    task.cancel()
        except ExceptionGroup as group:
            raise root_cause(group) from group
        finally:
            self._is_open = False
            self.status.mark_stopped()

    def background(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return more coroutines to run concurrently with `serve`; they are cancelled at its
        end."""
        return ()

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers of background jobs, by the kind of job."""
        return self.memory.handlers()

    def configure(self, config: Config) -> None:
        """Use another configuration from now on, except for the address and key of the agent
        server. Raises ConfigError; the previous configuration then stays in use."""
        agent = config.section(AgentSettings)
        folders = (config.data / agent.personas_dir, config.data / agent.skills_dir)
        # Whatever can raise comes first; the attributes are assigned last.
        self.prompts.read(self._persona_file(agent), *folders, config)
        self.prompts.mcp_servers.configure(self.name, config)
        self.config, self.agent = config, agent

    def apply_config(self, config: Config) -> None:
        """Use another configuration while running. Raises ConfigError; the previous configuration
        then stays in use."""
        self.configure(config)
        self.client.configure(self.agent)

    def reload(self) -> str:
        """Read the configuration, the personas and the skills again; return the outcome as a
        sentence. Raises ConfigError; the previous configuration then stays in use."""
        path = self.config.path
        if path:
            self.apply_config(with_agent_address(load(path, self.config.data), self.name))
        else:
            self.apply_config(self.config)
        return f"Reloaded. {self.prompts.error_summary()}".rstrip()

    @property
    @abstractmethod
    def pending(self) -> int:
        """The number of questions being answered or queued."""

    @property
    def disk_trouble(self) -> str:
        """Why nothing can be written to disk at the moment, "" if it can."""
        return self.log.chat_log.trouble or self.status.disk_trouble

    async def _report(self) -> None:
        """Send heartbeats to the agent server, from the time this tendril is ready until
        cancelled."""
        await self.status.became_ready.wait()
        tools = list(Toolbox.from_owners(self).names())

        def report() -> Heartbeat:
            return Heartbeat(
                state=self.status.state,
                tools=tools,
                pending=self.pending,
                tokens_today=self.accounting.today(),
                counters=self.metrics.counters,
                gauges=self.metrics.gauges,
                disk_trouble=bool(self.disk_trouble),
            )

        await send_heartbeats(self.client, self.name, report)

    async def _follow_files(self) -> None:
        """Reload when a file changes or SIGHUP arrives, until cancelled. If that fails, the
        previous configuration stays in use and the reason is logged."""
        async with aclosing(changes(self._watched_files)) as changed:
            async for _ in changed:
                try:
                    _log.info("config.changed", outcome=self.reload())
                except ConfigError as error:
                    _log.warning("config.kept", reason=str(error))

    def _watched_files(self) -> Iterator[Path]:
        """Yield the files whose changes cause a reload."""
        if self.config.path:
            yield self.config.path
        yield from self.prompts.files()

    def _persona_file(self, agent: AgentSettings) -> Path:
        own = Path(inspect.getfile(type(self))).with_name("persona.md")
        return agent.personas.get(self.name, own)
