"""Embedding vectors of memories; a foreign key removes each with its memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from operator import mul

from storage.db.database import Database


class MemoryVectors:
    """The vectors in a database file: unit vectors of float32."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def missing(self, room: str, limit: int) -> list[tuple[int, str]]:
        """Return ids and texts of the room's newest `limit` memories that have no vector."""
        rows = await self._database.fetch_all(
            "SELECT id, key, text FROM memories WHERE room = ? AND NOT EXISTS"
            " (SELECT 1 FROM memory_vectors WHERE memory_id = id) ORDER BY id DESC LIMIT ?",
            [room, limit],
        )
        return [(row["id"], f"{row['key']} {row['text']}".strip()) for row in rows]

    async def add(self, model: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store the vectors of memories by id, scaled to length one. A memory that was deleted in
        the meantime is left out; vectors of another model are deleted."""
        rows = [(model, _unit(vector).tobytes(), memory) for memory, vector in vectors.items()]
        async with self._database.transaction() as db:
            await db.execute("DELETE FROM memory_vectors WHERE model <> ?", [model])
            await db.executemany(
                "INSERT INTO memory_vectors (model, vector, memory_id)"
                " SELECT ?, ?, id FROM memories WHERE id = ? ON CONFLICT (memory_id) DO UPDATE SET"
                " model = excluded.model, vector = excluded.vector",
                rows,
            )

    async def any(self, room: str) -> bool:
        """Return True if a memory of the room has a vector."""
        row = await self._database.fetch_one(
            "SELECT 1 FROM memory_vectors JOIN memories ON id = memory_id WHERE room = ? LIMIT 1",
            [room],
        )
        return row is not None

    async def likeness(self, room: str, model: str, vector: Sequence[float]) -> dict[int, float]:
        """Return the cosine similarity of the room's memories to a vector, by id. Memories without
        a vector of this model are left out."""
        asked = _unit(vector)
        rows = await self._database.fetch_all(
            "SELECT memory_id, vector FROM memory_vectors JOIN memories ON id = memory_id"
            " WHERE room = ? AND model = ?",
            [room, model],
        )
        return {
            row["memory_id"]: sum(map(mul, asked, array("f", row["vector"])))
            for row in rows
            if len(row["vector"]) == len(asked) * asked.itemsize
        }


def _unit(vector: Sequence[float]) -> array[float]:
    length = math.sqrt(sum(each * each for each in vector)) or 1.0
    return array("f", [each / length for each in vector])
