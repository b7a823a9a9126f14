"""The resources of a running tendril: client, database and tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from harnesses.core.tendril.status import AccessMonitor, StatusFile
from llm.client.client import AgentClient, ModelCatalog, Reader
from llm.client.settings import AgentSettings
from llm.client.token_usage import TokenAccounting, TokenCounter
from llm.memory.room import TendrilMemory
from llm.memory.services import MemoryServices
from llm.prompt.builder import PromptBuilder
from storage.db.database import Address, Database
from storage.memory.conversations import Conversations, SkillTable
from storage.queues.jobs import Jobs
from storage.runs.runs import Runs
from terrarium.clock import Clock
from terrarium.config import Config


class TendrilResources:
    """The resources of one tendril, opened in the order of their dependencies.

    `name`, `config`, `agent` (its table `[agent]`), `prompts`, `clock` and `status` exist from the
    start; the others while `open_resources` is entered. `database` holds the tendril's own tables:
    `conversations`, `memory`, `jobs`, `runs` and `skills`. `client` is the connection to the agent
    server, and `access` reports it if the server refuses us. `catalog` lists the server's models,
    `token_counter` measures prompts, `reader` reads questions, and `accounting` records the
    tokens spent.
    """

    name: ClassVar[str]

    config: Config
    agent: AgentSettings
    prompts: PromptBuilder
    clock: Clock
    status: StatusFile

    database: Database
    accounting: TokenAccounting
    client: AgentClient
    access: AccessMonitor
    catalog: ModelCatalog
    token_counter: TokenCounter
    reader: Reader
    conversations: Conversations
    skills: SkillTable
    jobs: Jobs
    runs: Runs
    memory: TendrilMemory

    @abstractmethod
    def database_address(self) -> Address:
        """Return the address of the tendril's own database."""

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open all resources; they are closed on leaving. Raises StorageError and ConfigError."""
        async with (
            Database.open(self.database_address(), checked=True) as self.database,
            TokenAccounting.open(self.database) as self.accounting,
            AgentClient.open(self.agent, self.accounting.record) as self.client,
        ):
            self.access = AccessMonitor(self.client, self.status)
            self.catalog = ModelCatalog(self.client)
            self.token_counter = TokenCounter(self.client, self.catalog)
            self.reader = Reader(self.client)
            self.conversations = Conversations(self.database)
            self.skills = SkillTable(self.database)
            self.jobs = Jobs(self.database, self.clock.now)
            self.runs = Runs(self.database)
            await self.runs.interrupt()  # close the runs that the last process did not finish
            parts = (self.database, self.jobs, self.client, self.catalog, self.clock)
            self.memory = TendrilMemory(MemoryServices.open(self.name, *parts, self.config))
            await self.memory.schedule_check()
            yield
