"""The stores and clients that the parts of a tendril's memory share, and the search in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

import structlog

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.memory.settings import MemorySettings
from llm.messages.errors import ModelError, Unreachable
from storage.db.database import Database
from storage.memory.consolidation_state import ConsolidationStore
from storage.memory.memories import Memories, Memory
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


_LOOKED_AT = 50  # memories that have some of the words
_NEAR = 0.8  # likeness below which a memory has nothing to do with the question
_HALF = timedelta(days=30)  # of this age it counts for three quarters of a new one

_log = structlog.get_logger()


class MemorySearch:
    """Finds memories; the agent server makes the vector of the query."""

    def __init__(self, services: MemoryServices) -> None:
        self._memories = services.memories
        self._vectors = services.vectors
        self._client = services.client
        self._session = services.session

    async def search(self, room: str, text: str, limit: int, now: datetime) -> list[Memory]:
        """Return the memories of a room that match best, best first. Raises StorageError."""
        by_words = await self._memories.search(room, text, _LOOKED_AT)
        near = await self._near(room, text)
        found = {memory.id: memory for memory in await self._memories.those(room, near)}
        scores = dict(near)
        for memory, score in by_words:
            found[memory.id] = memory
            scores[memory.id] = max(scores.get(memory.id, 0.0), score / (1 + score))
        ranked = sorted(
            found.values(), key=lambda each: (-scores[each.id] * _fresh(each, now), -each.id)
        )
        return ranked[:limit]

    async def _near(self, room: str, text: str) -> Mapping[int, float]:
        """Return how similar memories are in meaning, by id; empty without vectors."""
        if not await self._vectors.any(room):
            return {}
        try:
            model, vectors = await self._client.embed(
                [text], RequestOptions(self._session), query=True
            )
        except ModelError as error:
            _log.warning("memory.not_compared", reason=type(error).__name__)
            return {}
        likeness = await self._vectors.likeness(room, model, vectors[0])
        return {memory: score for memory, score in likeness.items() if score >= _NEAR}


def _fresh(memory: Memory, now: datetime) -> float:
    """Return a weight from 1, for a new memory, down to a half."""
    return 0.5 + 0.5 * math.pow(0.5, max(timedelta(), now - memory.time) / _HALF)
