"""The skills that people have taught in rooms, and the usage scores of all skills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from storage.db.database import Connection, Repository, to_micros, writes

FILES = ""
"""The room of skills that are files: they are available in all rooms."""

MAX_SKILLS = 50
"""Taught skills of a room; if there are more, the least useful are deleted."""

_NEWEST_WEIGHT = 0.2  # weight of the newest use in the score, a moving average


@dataclass(frozen=True, slots=True)
class TaughtSkill:
    """A taught skill: when to use it (`description`), how (`body`), and its score from 0 to 1."""

    name: str
    description: str
    body: str
    teacher: str
    uses: int = 0
    score: float = 0.5


_TEACH = """
INSERT INTO skills (room, name, description, body, teacher, time) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (room, name) DO UPDATE SET description = excluded.description, body = excluded.body,
    teacher = excluded.teacher, time = excluded.time"""
# The skill that has just been taught was never used, and must not be the one to go.
_LEAST_USEFUL = """
DELETE FROM skills WHERE room = ?1 AND name IN (SELECT name FROM skills WHERE room = ?1
    ORDER BY time = ?2 DESC, uses * score DESC, time DESC LIMIT 1000000000 OFFSET ?3)"""


class SkillTable(Repository):
    """The skills in a tendril's file, by room."""

    @writes
    def teach(self, db: Connection, room: str, skill: TaughtSkill, now: datetime) -> None:
        """Store a skill, replacing one of the same name. Raises Unavailable."""
        values, time = (skill.name, skill.description, skill.body, skill.teacher), to_micros(now)
        db.execute(_TEACH, [room, *values, time])
        db.execute(_LEAST_USEFUL, [room, time, MAX_SKILLS])

    async def list_taught(self, room: str) -> list[TaughtSkill]:
        """Return the skills taught in a room, by name. Raises Unavailable."""
        sql = "SELECT * FROM skills WHERE room = ? AND room != '' ORDER BY name"
        rows = await self._database.fetch_all(sql, [room])
        return [TaughtSkill(*(row[field] for field in TaughtSkill.__slots__)) for row in rows]

    async def record_use(self, room: str, names: Collection[str], *, well: bool) -> None:
        """Count one use of each of these skills, and whether the answer went well."""
        rows = [
            {"room": room, "name": name, "well": float(well), "new": _NEWEST_WEIGHT}
            for name in names
        ]
        await self._database.executemany(
            "INSERT INTO skills SELECT :room, :name, '', '', '', 0, 1,"
            " 0.5 + (:well - 0.5) * :new WHERE :room = '' OR EXISTS"
            " (SELECT 1 FROM skills WHERE room = :room AND name = :name)"
            " ON CONFLICT (room, name) DO UPDATE SET uses = skills.uses + 1,"
            " score = skills.score + (:well - skills.score) * :new",
            rows,
        )

    async def scores(self, room: str) -> dict[str, tuple[int, float]]:
        """Return uses and score of those skills of a room that were used, by name."""
        sql = "SELECT name, uses, score FROM skills WHERE room = ? AND uses > 0 ORDER BY name"
        rows = await self._database.fetch_all(sql, [room])
        return {row["name"]: (row["uses"], row["score"]) for row in rows}

    async def forget_of(self, names: Collection[str]) -> None:
        """Delete the skills that anybody of these `names` has taught. Raises Unavailable."""
        sql = "DELETE FROM skills WHERE room != '' AND teacher = ?"
        await self._database.executemany(sql, [[name] for name in names])

    async def forget(self, room: str, name: str | None = None) -> int:
        """Delete one skill taught in a room, or all; return how many. Raises Unavailable."""
        sql = "DELETE FROM skills WHERE room = ? AND room != '' AND name = coalesce(?, name)"
        return await self._database.execute(sql, [room, name])
