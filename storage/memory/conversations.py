"""Conversations and taught skills.

Conversations are whole turns, stored apart from the log, so that they survive a restart. People
have taught the skills in rooms; all skills of the bot have usage scores.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.chat_log.opt_outs import person_of
from storage.connection import GIVEN, Connection
from storage.db.database import Database, from_micros, to_micros
from storage.memory.deletion import forget_conversation

Message = dict[str, Any]
"""A message in the OpenAI chat format: role, content, tool_calls, tool_call_id."""

MAX_TURNS = 200  # turns of a conversation, the newest

FILES = ""
"""The room of skills that are files: they are available in all rooms."""

MAX_SKILLS = 50
"""Taught skills of a room; if there are more, the least useful are deleted."""

_NEWEST_WEIGHT = 0.2  # weight of the newest use in the score, a moving average


_CONVERSATION = """
INSERT INTO conversations (name, room, person) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET room = excluded.room, person = excluded.person"""
_TURN = """
INSERT INTO turns (conversation_id, anchor, time, messages, related)
SELECT id, ?, ?, ?, ? FROM conversations WHERE name = ? RETURNING id"""
_ASSIGN = """
UPDATE memories SET first_turn = ?1, last_turn = ?1, begun = ?2
WHERE conversation = ?3 AND last_turn = 0"""
_ANSWERS = f"""
SELECT t.anchor, t.messages FROM conversations c JOIN turns t ON t.conversation_id = c.id
WHERE c.room = ? AND t.anchor IN {GIVEN}"""
_OLDEST = """
DELETE FROM turns WHERE id IN (SELECT t.id FROM turns t JOIN conversations c
ON c.id = t.conversation_id WHERE c.name = ? ORDER BY t.id DESC LIMIT 1000000000 OFFSET ?)"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and all that came of it: the tool calls, their results, the answer.

    `question_event_id` is the id of the question's event in the log, 0 where there is no log;
    `related` are the ids of earlier lines that the model was shown besides the newest ones.
    """

    question_event_id: int
    time: datetime
    messages: tuple[Message, ...]
    id: int = 0
    related: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptWindow:
    """The first log event and the first turn in the prompt of a conversation."""

    log_start: int = 0
    turn_start: int = 0


class Conversations:
    """The conversations in a database file, by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, name: str, turn: Turn, room: str = "", person: str = "") -> int:
        """Store a finished turn and return its id, which is greater than any before. Of the
        conversation only the newest `MAX_TURNS` turns are kept. It belongs to `room`, by default
        one of its own name, and is with `person`."""
        values = [
            turn.question_event_id,
            to_micros(turn.time),
            json.dumps(turn.messages),
            json.dumps(turn.related),
            name,
        ]

        def insert(db: Connection) -> int:
            db.execute(_CONVERSATION, [name, room or name, person_of(person)])
            row = db.execute(_TURN, values).fetchone()
            # Facts and notes of this turn were stored by tools before its id was known.
            db.execute(_ASSIGN, [row[0], to_micros(turn.time), name])
            db.execute(_OLDEST, [name, MAX_TURNS])
            return int(row[0])

        return await self._database.write(insert)

    async def turns(self, name: str, *, start: int = 0, limit: int = MAX_TURNS) -> list[Turn]:
        """Return the newest `limit` turns of a conversation with ids from `start` on, oldest
        first."""
        return await self._database.read(_turns, name, start, limit)

    async def answers(self, room: str, questions: Collection[int]) -> dict[int, str]:
        """Return the whole answers of the turns of a room, in anybody's conversation there, to the
        `questions` (ids of their log events), each after the asker's name, with which a model may
        have begun it; those without a stored turn are left out."""

        def read(db: Connection) -> dict[int, str]:
            rows = db.execute(_ANSWERS, [room, json.dumps(sorted(questions))]).fetchall()
            found = {}
            for row in rows:
                messages = json.loads(row["messages"])
                name, answer = messages[0].get("name", ""), messages[-1]["content"] or ""
                is_addressed = answer.lower().startswith(f"{name.lower()}: ")
                found[row["anchor"]] = answer if is_addressed else f"{name}: {answer}"
            return found

        return await self._database.read(read) if questions else {}

    async def room(self, name: str) -> str:
        """Return the room of a conversation: its own name as long as it is not stored."""
        row = await self._database.fetch_one(
            "SELECT room FROM conversations WHERE name = ?", [name]
        )
        return str(row["room"]) if row else name

    async def recall(self, name: str) -> tuple[PromptWindow, list[Turn]]:
        """Return where the prompt of this conversation begins, and its turns from there on, oldest
        first, read in one snapshot."""

        def both(db: Connection) -> tuple[PromptWindow, list[Turn]]:
            row = db.execute(
                "SELECT log_start, turn_start FROM conversations WHERE name = ?", [name]
            ).fetchone()
            window = PromptWindow(*row) if row else PromptWindow()
            return window, _turns(db, name, window.turn_start, MAX_TURNS)

        return await self._database.read(both)

    async def move_window(self, name: str, window: PromptWindow) -> None:
        """Store where the prompt of this conversation begins, also before its first turn."""
        await self._database.execute(
            "INSERT INTO conversations (name, room, log_start, turn_start)"
            " VALUES (?1, ?1, ?2, ?3) ON CONFLICT (name) DO UPDATE"
            " SET log_start = excluded.log_start, turn_start = excluded.turn_start",
            [name, window.log_start, window.turn_start],
        )

    async def clear(self, name: str) -> int:
        """Delete a conversation and all memories made from it; return how many turns it had."""

        def work(db: Connection) -> int:
            cursor = db.execute(
                "DELETE FROM turns WHERE conversation_id ="
                " (SELECT id FROM conversations WHERE name = ?)",
                [name],
            )
            forget_conversation(db, name)
            return cursor.rowcount

        return await self._database.write(work)


def _turns(db: Connection, name: str, start: int, limit: int) -> list[Turn]:
    rows = db.execute(
        "SELECT t.* FROM turns t JOIN conversations c ON c.id = t.conversation_id"
        " WHERE c.name = ? AND t.id >= ? ORDER BY t.id DESC LIMIT ?",
        [name, start, limit],
    ).fetchall()
    return [
        Turn(
            row["anchor"],
            from_micros(row["time"]),
            tuple(json.loads(row["messages"])),
            row["id"],
            tuple(json.loads(row["related"])),
        )
        for row in reversed(rows)
    ]


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


_TEACH = """
INSERT INTO skills (room, name, description, body, teacher, time) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (room, name) DO UPDATE SET description = excluded.description, body = excluded.body,
    teacher = excluded.teacher, time = excluded.time"""
# The skill that has just been taught was never used, and must not be the one to go.
_LEAST_USEFUL = """
DELETE FROM skills WHERE room = ?1 AND name IN (SELECT name FROM skills WHERE room = ?1
    ORDER BY time = ?2 DESC, uses * score DESC, time DESC LIMIT 1000000000 OFFSET ?3)"""


class SkillTable:
    """The skills in a tendril's file, by room."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def teach(self, room: str, skill: TaughtSkill, now: datetime) -> None:
        """Store a skill, replacing one of the same name. Raises Unavailable."""
        values, time = (skill.name, skill.description, skill.body, skill.teacher), to_micros(now)

        def work(db: Connection) -> None:
            db.execute(_TEACH, [room, *values, time])
            db.execute(_LEAST_USEFUL, [room, time, MAX_SKILLS])

        await self._database.write(work)

    async def list_taught(self, room: str) -> list[TaughtSkill]:
        """Return the skills taught in a room, by name. Raises Unavailable."""
        sql = "SELECT * FROM skills WHERE room = ? AND room != '' ORDER BY name"
        rows = await self._database.fetch_all(sql, [room])
        return [TaughtSkill(*(row[field] for field in TaughtSkill.__slots__)) for row in rows]

    async def record_use(self, room: str, names: Collection[str], *, well: bool) -> None:
        """Count one use of each of these skills in an answer, and whether that went well. Raises
        Unavailable."""
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
        """Return uses and score of those skills of a room that were used, by name. Raises
        Unavailable."""
        rows = await self._database.fetch_all(
            "SELECT name, uses, score FROM skills WHERE room = ? AND uses > 0 ORDER BY name", [room]
        )
        return {row["name"]: (row["uses"], row["score"]) for row in rows}

    async def forget_of(self, names: Collection[str]) -> None:
        """Delete the skills that anybody of these `names` has taught. Raises Unavailable."""
        await self._database.executemany(
            "DELETE FROM skills WHERE room != '' AND teacher = ?", [[name] for name in names]
        )

    async def forget(self, room: str, name: str | None = None) -> int:
        """Delete one skill taught in a room, or all; return how many. Raises Unavailable."""
        return await self._database.execute(
            "DELETE FROM skills WHERE room = ? AND room != '' AND name = coalesce(?, name)",
            [room, name],
        )
