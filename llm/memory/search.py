"""Search in memory, by words and, where there are vectors, by meaning; newer ones rank higher."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

import structlog

from llm.client.client import RequestOptions
from llm.memory.services import MemoryServices
from llm.messages.errors import ModelError
from storage.memory.memories import Memory

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
