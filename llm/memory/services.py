"""The stores and clients that the parts of a tendril's memory share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from llm.client.client import AgentClient
from llm.client.model_catalog import ModelCatalog
from llm.memory.settings import MemorySettings
from llm.messages.errors import Unreachable
from storage.db.database import Database
from storage.memory.consolidation_state import ConsolidationStore
from storage.memory.memories import Memories
from storage.memory.vectors import MemoryVectors
from storage.queues.jobs import Jobs
from storage.settings import StorageSettings
from terrarium.clock import Clock
from terrarium.config import Config


@dataclass(frozen=True, slots=True)
class MemoryServices:
    """The stores of one tendril's memory, and the client by which its model is asked.

    `embeds` tells that memories are given vectors, as the log is.
    """

    tendril: str
    settings: MemorySettings
    embeds: bool
    client: AgentClient
    catalog: ModelCatalog
    clock: Clock
    jobs: Jobs
    memories: Memories
    rooms: ConsolidationStore
    vectors: MemoryVectors

    @classmethod
    def open(
        cls,
        tendril: str,
        database: Database,
        jobs: Jobs,
        client: AgentClient,
        catalog: ModelCatalog,
        clock: Clock,
        config: Config,
    ) -> Self:
        """Make the stores over a tendril's `database`."""
        return cls(
            tendril,
            config.section(MemorySettings),
            config.section(StorageSettings).semantic,
            client,
            catalog,
            clock,
            jobs,
            Memories(database),
            ConsolidationStore(database),
            MemoryVectors(database),
        )

    @property
    def session(self) -> str:
        """The conversation that requests for memory belong to at the agent server."""
        return f"{self.tendril}/memory"

    def now(self) -> datetime:
        """Return the time of day."""
        return self.clock.now()

    async def learns(self) -> bool:
        """Decide if the model is asked to make memories of what was said.

        Raises Unreachable while it is unknown if the model is good enough for that: a bad memory
        would stay for good, so the job that asks is retried later.
        """
        if self.settings.learn != "auto":
            return self.settings.learn == "on"
        judgement = await self.catalog.tool_judgement(await self.catalog.fast())
        if judgement is None:
            raise Unreachable("it is not known yet whether the model can be trusted with memories")
        return judgement
