"""The resources of a running tendril: client, database and tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harnesses.core.tendril.configuration import Configuration
from harnesses.core.tendril.status import AccessMonitor, StatusFile
from llm.client.client import AgentClient, ModelCatalog, Reader
from llm.client.token_usage import TokenAccounting, TokenCounter
from llm.memory.consolidation import TendrilMemory
from llm.memory.room import SharedMemory
from llm.memory.settings import MemorySettings
from storage.db.database import Database
from storage.memory.conversations import Conversations
from storage.memory.memories import Memories
from storage.memory.skills import SkillTable
from storage.queues.jobs import Jobs
from storage.runs.runs import Runs
from storage.settings import log_address, store_address
from terrarium.clock import Clock


class Resources:
    """The resources for answers: the configuration, the model, and the tendril's own tables.

    `client` is the connection to the agent server, and `access` reports it if the server refuses
    us. `catalog` lists the server's models, `token_counter` measures prompts, `reader` reads
    questions, and `accounting` records the tokens spent. `database` holds the tendril's own tables:
    `conversations`, `memory`, `jobs`, `runs` and `skills`. `shared_memory` has the facts of all
    rooms.
    """

    memory: TendrilMemory
    shared_memory: SharedMemory

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        status: StatusFile,
        clock: Clock,
        database: Database,
        accounting: TokenAccounting,
        client: AgentClient,
    ) -> None:
        self.name, self.configuration, self.status, self.clock = name, configuration, status, clock
        self.database, self.accounting, self.client = database, accounting, client
        self.access, self.catalog = AccessMonitor(client, status), ModelCatalog(client)
        self.token_counter, self.reader = TokenCounter(client, self.catalog), Reader(client)
        self.conversations, self.skills = Conversations(database), SkillTable(database)
        self.jobs, self.runs = Jobs(database, clock.now), Runs(database)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        name: str,
        configuration: Configuration,
        status: StatusFile,
        clock: Clock,
        *,
        uses_log_database: bool,
        learns: bool = True,
    ) -> AsyncIterator[Resources]:
        """Open all resources; they are closed on leaving. Unless it `learns`, the model makes no
        memories of what is said to it. Raises StorageError and ConfigError."""
        config = configuration.config
        address = log_address(config) if uses_log_database else store_address(config, name)
        async with (
            Database.open(address, checked=True) as database,
            TokenAccounting.open(database) as accounting,
            AgentClient.open(configuration.agent, accounting.record) as client,
        ):
            own = cls(name, configuration, status, clock, database, accounting, client)
            await own.runs.interrupt()  # close the runs that the last process did not finish
            settings, memories = config.section(MemorySettings), Memories(database)
            if not learns:
                settings = settings.model_copy(update={"learn": "off"})
            own.memory = TendrilMemory(
                name, settings, client, own.catalog, clock, own.jobs, memories
            )
            own.shared_memory = SharedMemory(name, database, config.data, settings)
            await own.memory.schedule_check()
            yield own
