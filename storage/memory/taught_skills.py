"""Skills that people have taught the bot, and usage scores of all its skills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from storage.db.database import AsyncConnection, Database, to_micros

FILES = ""
"""The room of skills that are files: they are available in all rooms."""

MAX_SKILLS = 50
"""Taught skills of a room; if there are more, the least useful are deleted."""

_MAX_CACHED_ROOMS = 1_000  # entries of the cache of rooms without taught skills
_NEWEST_WEIGHT = 0.2  # weight of the newest use in the score, a moving average


@dataclass(frozen=True, slots=True)
class TaughtSkill:
    """A skill that somebody has taught. `description` tells when to use it, `body` how. `score` is
    from 0 to 1."""

    name: str
    description: str
    body: str
    teacher: str
    uses: int = 0
    score: float = 0.5


class SkillTable:
    """The skills in a tendril's file, by room."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._untaught: set[str] = set()  # rooms; only `teach` can change that
        self._lessons = 0

    async def teach(self, room: str, skill: TaughtSkill, now: datetime) -> None:
        """Store a skill, replacing one of the same name. Raises Unavailable."""
        try:
            async with self._database.transaction() as db:
                await _upsert(db, room, skill, to_micros(now))
        finally:  # also after an error, as the skill may be stored all the same
            self._lessons += 1
            self._untaught.discard(room)

    async def list_taught(self, room: str) -> list[TaughtSkill]:
        """Return the skills taught in a room, by name. Raises Unavailable."""
        if room in self._untaught:
            return []
        lessons = self._lessons
        sql = "SELECT * FROM skills WHERE room = ? AND room != '' ORDER BY name"
        rows = await self._database.read(lambda db: db.execute(sql, [room]).fetchall(), inline=True)
        if not rows and lessons == self._lessons:  # nothing was taught while we were reading
            if len(self._untaught) >= _MAX_CACHED_ROOMS:
                self._untaught.clear()
            self._untaught.add(room)
        return [TaughtSkill(*(row[field] for field in TaughtSkill.__slots__)) for row in rows]

    async def record_use(self, room: str, names: Collection[str], *, well: bool) -> None:
        """Count one use of each of these skills in an answer, and whether that went well. Raises
        Unavailable."""
        rows = [
            {"room": room, "name": name, "well": float(well), "new": _NEWEST_WEIGHT}
            for name in names
        ]
        async with self._database.transaction() as db:
            await db.executemany(
                "INSERT INTO skills SELECT :room, :name, '', '', '', 0, 1,"
                " 0.5 + (:well - 0.5) * :new WHERE :room = '' OR EXISTS"
                " (SELECT 1 FROM skills WHERE room = :room AND name = :name)"
                " ON CONFLICT (room, name) DO UPDATE SET uses = skills.uses + 1,"
                " score = skills.score + (:well - skills.score) * :new",
                rows,
            )

    async def scores(self, room: str) -> dict[str, tuple[int, float]]:
        """Return uses and score of those skills of a room that were used, by name. Raises
        Unavailable."""
        rows = await self._database.fetch_all(
            "SELECT name, uses, score FROM skills WHERE room = ? AND uses > 0 ORDER BY name", [room]
        )
        return {row["name"]: (row["uses"], row["score"]) for row in rows}

    async def forget_of(self, names: Collection[str]) -> None:
        """Delete the skills that anybody of these `names` has taught. Raises Unavailable."""
        async with self._database.transaction() as db:
            await db.executemany(
                "DELETE FROM skills WHERE room != '' AND teacher = ?", [[name] for name in names]
            )

    async def forget(self, room: str, name: str | None = None) -> int:
        """Delete one skill taught in a room, or all; return how many. Raises Unavailable."""
        async with self._database.transaction() as db:
            cursor = await db.execute(
                "DELETE FROM skills WHERE room = ? AND room != '' AND name = coalesce(?, name)",
                [room, name],
            )
            return cursor.rowcount


async def _upsert(db: AsyncConnection, room: str, skill: TaughtSkill, time: int) -> None:
    await db.execute(
        "INSERT INTO skills (room, name, description, body, teacher, time)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (room, name) DO UPDATE SET"
        " description = excluded.description, body = excluded.body,"
        " teacher = excluded.teacher, time = excluded.time",
        [room, skill.name, skill.description, skill.body, skill.teacher, time],
    )
    # The skill that has just been taught was never used, and must not be the one to go.
    await db.execute(
        "DELETE FROM skills WHERE room = ?1 AND name IN (SELECT name FROM skills"
        " WHERE room = ?1 ORDER BY time = ?2 DESC, uses * score DESC, time DESC"
        " LIMIT 1000000000 OFFSET ?3)",
        [room, time, MAX_SKILLS],
    )
