"""The resources of a running tendril: client, database and tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """The resources for answers: the configuration, the model, and the tendril's own tables.

    `client` is the connection to the agent server, and `access` reports it if the server refuses
    us. `catalog` lists the server's models, `token_counter` measures prompts, `reader` reads
    questions, and `accounting` records the tokens spent. `database` holds the tendril's own tables:
    `conversations`, `memory`, `jobs`, `runs` and `skills`. `shared_memory` has the facts of all
    rooms.
    """

    name: str
    configuration: Configuration
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
    shared_memory: SharedMemory

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
            catalog = ModelCatalog(client)
            jobs, runs = Jobs(database, clock.now), Runs(database)
            await runs.interrupt()  # close the runs that the last process did not finish
            settings, memories = config.section(MemorySettings), Memories(database)
            if not learns:
                settings = settings.model_copy(update={"learn": "off"})
            memory = TendrilMemory(name, settings, client, catalog, clock, jobs, memories)
            await memory.schedule_check()
            yield cls(
                name=name,
                configuration=configuration,
                clock=clock,
                status=status,
                database=database,
                accounting=accounting,
                client=client,
                access=AccessMonitor(client, status),
                catalog=catalog,
                token_counter=TokenCounter(client, catalog),
                reader=Reader(client),
                conversations=Conversations(database),
                skills=SkillTable(database),
                jobs=jobs,
                runs=runs,
                memory=memory,
                shared_memory=SharedMemory(name, database, config.data, settings),
            )
