"""The client, the database and the tables that a tendril has open while it runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from harnesses.core.tendril.pseudonyms import Pseudonyms
from harnesses.core.tendril.status import AccessMonitor, StatusFile
from llm.client.client import AgentClient, ModelCatalog, TokenCounter
from llm.client.settings import AgentSettings
from llm.client.token_usage import TokenAccounting
from llm.memory.room import TendrilMemory
from llm.memory.services import MemoryServices
from llm.prompt.builder import PromptBuilder
from storage.db.database import Address, Database
from storage.memory.conversations import Conversations
from storage.memory.taught_skills import SkillTable
from storage.queues.jobs import Jobs
from storage.runs.runs import Runs
from terrarium.clock import Clock
from terrarium.config import Config


class TendrilResources:
    """The resources of one tendril, opened in the order in which they need one another.

    `name`, `config`, `agent` (its table `[agent]`), `prompts`, `clock` and `status` are there from
    the start. `database` has the tendril's own tables; `conversations`, `memory`, `jobs`,
    `runs` and `skills` are kept in it. `client` reaches the agent server, `access` tells the owner
    when that refuses us, `catalog` knows its models, `token_counter` the length of prompts,
    `accounting` the tokens spent, and `pseudonyms` what it calls people and channels.
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
    pseudonyms: Pseudonyms
    conversations: Conversations
    skills: SkillTable
    jobs: Jobs
    runs: Runs
    memory: TendrilMemory

    @abstractmethod
    def database_address(self) -> Address:
        """Return where the tendril's own tables are."""

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open everything, and close it at the end. Raises StorageError and ConfigError."""
        async with (
            Database.open(self.database_address(), checked=True) as self.database,
            TokenAccounting.open(self.database) as self.accounting,
            AgentClient.open(self.agent, self.accounting.record) as self.client,
        ):
            self.pseudonyms = Pseudonyms(self.config.data, self.name, self.clock.now)
            self.access = AccessMonitor(self.client, self.status)
            self.catalog = ModelCatalog(self.client)
            self.token_counter = TokenCounter(self.client)
            self.conversations = Conversations(self.database)
            self.skills = SkillTable(self.database)
            self.jobs = Jobs(self.database, self.clock.now)
            self.runs = Runs(self.database)
            await self.runs.interrupt()  # those that the last process left running
            parts = (self.database, self.jobs, self.client, self.catalog, self.clock)
            self.memory = TendrilMemory(MemoryServices.open(self.name, *parts, self.config))
            await self.memory.schedule_check()
            yield
