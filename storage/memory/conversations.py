"""Conversations: whole turns, stored apart from the log, so that they survive a restart."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.chat_log.opt_outs import person_of
from storage.connection import GIVEN, Connection
from storage.db.database import Repository, Row, from_micros, reads, to_micros, writes
from storage.memory.deletion import DeletedTurn, forget_conversation, forget_people

Message = dict[str, Any]
"""A message in the OpenAI chat format: role, content, tool_calls, tool_call_id."""

MAX_TURNS = 200  # turns of a conversation, the newest

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
class ConversationEntry:
    """A conversation of a room: its first question, and the time and id of its last turn."""

    name: str
    question: str
    time: datetime
    last: int


@dataclass(frozen=True, slots=True)
class PromptWindow:
    """The first log event and the first turn in the prompt of a conversation."""

    log_start: int = 0
    turn_start: int = 0


class Conversations(Repository):
    """The conversations in a database file, by name."""

    @writes
    def add(self, db: Connection, name: str, turn: Turn, room: str = "", person: str = "") -> int:
        """Store a finished turn and return its id, which is greater than any before. Of the
        conversation only the newest `MAX_TURNS` turns are kept. It belongs to `room`, by default
        one of its own name, and is with `person`."""
        time = to_micros(turn.time)
        messages, related = json.dumps(turn.messages), json.dumps(turn.related)
        db.execute(_CONVERSATION, [name, room or name, person_of(person)])
        values = [turn.question_event_id, time, messages, related, name]
        row = db.execute(_TURN, values).fetchone()
        # Facts and notes of this turn were stored by tools before its id was known.
        db.execute(_ASSIGN, [row[0], time, name])
        db.execute(_OLDEST, [name, MAX_TURNS])
        return int(row[0])

    async def turns(
        self, name: str, *, start: int = 0, end: int = 0, limit: int = MAX_TURNS
    ) -> list[Turn]:
        """Return the newest turns with ids from `start` on and, unless it is 0, below `end`."""
        return await self._database.read(_turns, name, start, end, limit)

    async def since(self, room: str, start: int, limit: int = 50) -> list[tuple[str, Turn]]:
        """Return a room's oldest turns with ids above `start`, with the names of conversations."""
        rows = await self._database.fetch_all(
            "SELECT c.name, t.* FROM turns t JOIN conversations c ON c.id = t.conversation_id"
            " WHERE c.room = ? AND t.id > ? ORDER BY t.id LIMIT ?",
            [room, start, limit],
        )
        return [(row["name"], _turn(row)) for row in rows]

    async def answers(self, room: str, questions: Collection[int]) -> dict[int, str]:
        """Return the whole answers of the turns of a room, in anybody's conversation there, to the
        `questions` (ids of their log events), each after the asker's name, with which a model may
        have begun it; those without a stored turn are left out."""
        found = {}
        for row in await self._database.fetch_all(_ANSWERS, [room, json.dumps(sorted(questions))]):
            messages = json.loads(row["messages"])
            name, answer = messages[0].get("name", ""), messages[-1]["content"] or ""
            is_addressed = answer.lower().startswith(f"{name.lower()}: ")
            found[row["anchor"]] = answer if is_addressed else f"{name}: {answer}"
        return found

    async def room(self, name: str) -> str:
        """Return the room of a conversation: its own name as long as it is not stored."""
        sql = "SELECT room FROM conversations WHERE name = ?"
        row = await self._database.fetch_one(sql, [name])
        return str(row["room"]) if row else name

    async def of_room(self, room: str, limit: int) -> list[ConversationEntry]:
        """Return the `limit` conversations of a room that were held last, the newest first."""
        rows = await self._database.fetch_all(
            "SELECT c.name, max(t.time) AS time, max(t.id) AS last, (SELECT messages"
            " FROM turns f WHERE f.conversation_id = c.id ORDER BY f.id LIMIT 1) AS first"
            " FROM conversations c JOIN turns t ON t.conversation_id = c.id"
            " WHERE c.room = ? GROUP BY c.id, c.name ORDER BY max(t.time) DESC LIMIT ?",
            [room, limit],
        )
        return [
            ConversationEntry(
                row["name"],
                str(json.loads(row["first"])[0].get("content") or ""),
                from_micros(row["time"]),
                row["last"],
            )
            for row in rows
        ]

    async def cut(self, name: str, start: int) -> None:
        """Delete the turns of a conversation from an id on, and what was made of them."""
        room = await self.room(name)
        turns = [
            DeletedTurn(turn.id, room, name, turn.question_event_id)
            for turn in await self.turns(name, start=start)
        ]
        if turns:
            await forget_people(self._database, (), lambda _: False, turns)

    @reads
    def recall(self, db: Connection, name: str, end: int = 0) -> tuple[PromptWindow, list[Turn]]:
        """Return where a prompt of the conversation begins, and its turns from there to `end`."""
        sql = "SELECT log_start, turn_start FROM conversations WHERE name = ?"
        row = db.execute(sql, [name]).fetchone()
        window = PromptWindow(*row) if row else PromptWindow()
        return window, _turns(db, name, window.turn_start, end, MAX_TURNS)

    async def move_window(self, name: str, window: PromptWindow) -> None:
        """Store where the prompt of this conversation begins, also before its first turn."""
        await self._database.execute(
            "INSERT INTO conversations (name, room, log_start, turn_start)"
            " VALUES (?1, ?1, ?2, ?3) ON CONFLICT (name) DO UPDATE"
            " SET log_start = excluded.log_start, turn_start = excluded.turn_start",
            [name, window.log_start, window.turn_start],
        )

    @writes
    def clear(self, db: Connection, name: str) -> int:
        """Delete a conversation and all memories made from it; return how many turns it had."""
        cursor = db.execute(
            "DELETE FROM turns WHERE conversation_id ="
            " (SELECT id FROM conversations WHERE name = ?)",
            [name],
        )
        forget_conversation(db, name)
        return cursor.rowcount


def _turns(db: Connection, name: str, start: int, end: int, limit: int) -> list[Turn]:
    rows = db.execute(
        "SELECT t.* FROM turns t JOIN conversations c ON c.id = t.conversation_id"
        " WHERE c.name = ? AND t.id >= ? AND t.id < ? ORDER BY t.id DESC LIMIT ?",
        [name, start, end or 2**63 - 1, limit],
    ).fetchall()
    return [_turn(row) for row in reversed(rows)]


def _turn(row: Row) -> Turn:
    return Turn(
        row["anchor"],
        from_micros(row["time"]),
        tuple(json.loads(row["messages"])),
        row["id"],
        tuple(json.loads(row["related"])),
    )
