"""The stores and clients of a tendril's memory, and the search in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from llm.client.client import AgentClient, ModelCatalog
from llm.memory.settings import MemorySettings
from llm.messages.errors import Unreachable
from storage.db.database import Database
from storage.memory.consolidation_state import ConsolidationStore
from storage.memory.memories import Memories, Memory
from storage.queues.jobs import Jobs
from terrarium.clock import Clock
from terrarium.config import Config

_MAX_CANDIDATES = 50  # candidates from the full-text search
# The half-life of the bonus for recent memories, which count up to twice as much as old ones.
_RECENCY_HALF_LIFE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class MemoryServices:
    """The stores of one tendril's memory, the search in them, and the client for its model."""

    tendril: str
    settings: MemorySettings
    client: AgentClient
    catalog: ModelCatalog
    clock: Clock
    jobs: Jobs
    memories: Memories
    rooms: ConsolidationStore

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
        """Create the stores over a tendril's `database`."""
        settings, rooms = config.section(MemorySettings), ConsolidationStore(database)
        return cls(tendril, settings, client, catalog, clock, jobs, Memories(database), rooms)

    def now(self) -> datetime:
        """Return the current time."""
        return self.clock.now()

    async def learns(self) -> bool:
        """Return whether the model is used to make memories of what was said.

        Raises Unreachable while it is unknown whether the model is good enough: a bad memory is
        permanent, so the job is rather retried later.
        """
        if self.settings.learn != "auto":
            return self.settings.learn == "on"
        judgement = await self.catalog.tool_judgement(await self.catalog.fast())
        if judgement is None:
            raise Unreachable("it is not known yet whether the model can be trusted with memories")
        return judgement

    async def search(self, room: str, text: str, limit: int) -> list[Memory]:
        """Return the `limit` best matches among a room's memories, by their words and age, best
        first. Raises StorageError."""
        found = await self.memories.search(room, text, _MAX_CANDIDATES)
        now = self.now()

        def worth(match: tuple[Memory, float]) -> tuple[float, int]:
            memory, score = match
            age = max(timedelta(), now - memory.time) / _RECENCY_HALF_LIFE
            # The full-text score is unbounded; map it to 0..1.
            return score / (1 + score) * (0.5 + 0.5 * math.pow(0.5, age)), memory.id

        return [memory for memory, _ in sorted(found, key=worth, reverse=True)[:limit]]
