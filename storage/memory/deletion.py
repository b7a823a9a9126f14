"""Deletion of memories when a person or a conversation is forgotten.

Facts and notes are deleted one by one. An episode or a summary is deleted as a whole if it may have
words of the person; in the same transaction it is recorded that jobs have to make it again from the
remaining turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from storage.chat_log.opt_outs import person_of
from storage.connection import GIVEN, Connection
from storage.db.database import Database
from storage.memory.memories import MemoryKind, in_network, invalidate_prompt_view, memory_of
from storage.queues.jobs import Jobs

CONSOLIDATE = "memory.tend"
"""The kind of the job that makes memories of turns, in one room or, without a room, in all."""


@dataclass(frozen=True, slots=True)
class DeletedTurn:
    """A turn that is being deleted; `anchor` is the id of the question's event, 0 for none."""

    id: int
    room: str
    conversation: str
    anchor: int


def forget_conversation(db: Connection, name: str) -> None:
    """Delete a conversation with all memories made from it, in a transaction."""
    rooms = _column(db, "SELECT room FROM conversations WHERE name = ?", name)
    db.execute("DELETE FROM conversations WHERE name = ?", [name])
    made = (
        "SELECT id FROM memories WHERE conversation = ?1 UNION"
        " SELECT memory_id FROM memory_sources WHERE conversation = ?1"
    )
    _remove(db, _column(db, made, name), rooms)
    _forget_empty(db)


async def forget_people(
    database: Database,
    names: Collection[str],
    in_room: Callable[[str], bool],
    turns: Sequence[DeletedTurn],
) -> int:
    """Delete `turns`, the memories made from them and, in the rooms that `in_room` accepts, those
    about people of these `names` or said by them; return how many memories there were. A fact that
    somebody else of that name said of themselves stays, as its turn does. Raises Unavailable."""
    people = {person_of(name) for name in names}

    def work(db: Connection) -> int:
        # In one transaction with the memories, so that no job makes any of these turns meanwhile.
        db.executemany("DELETE FROM turns WHERE id = ?", [[turn.id] for turn in turns])
        left = _column(db, "SELECT id FROM turns")
        sources: dict[int, set[tuple[str, str]]] = {}
        for memory_id, *source in db.execute("SELECT * FROM memory_sources"):
            sources.setdefault(memory_id, set()).add((source[0], source[1]))
        ids = set()
        for memory in map(memory_of, db.execute("SELECT * FROM memories")):
            made_from = sources.get(memory.id, set())
            conversations = {name for name, _ in made_from} | {memory.conversation}
            came_from_turn = any(
                turn.room == memory.room
                and memory.first_turn <= turn.id <= memory.last_turn
                and turn.conversation in conversations
                for turn in turns
            )
            if memory.layer in (MemoryKind.EPISODE, MemoryKind.SUMMARY):
                is_theirs = any(person in people for _, person in made_from)
            else:
                # Names can be shared. If the turn of a fact is not deleted, a namesake has said it.
                own = memory.source in people
                is_about = own or memory.subject in people
                is_theirs = is_about and not (own and memory.last_turn in left)
            if came_from_turn or (is_theirs and in_room(memory.room)):
                ids.add(memory.id)
        _remove(db, ids, {turn.room for turn in turns})
        return len(ids)

    return await database.write(work)


async def redact(database: Database, network: str, name: str) -> None:
    """Delete episodes and summaries with words of somebody who has opted out, so that they are made
    again without them. Raises Unavailable."""
    person = person_of(name)

    def work(db: Connection) -> None:
        theirs = (
            "SELECT memory_id FROM memory_sources JOIN memories ON id = memory_id"
            f" WHERE person = ? AND {in_network('room', '?')}"
        )
        rooms = _column(db, "SELECT room FROM conversations WHERE person = ?", person)
        _remove(db, _column(db, theirs, person, network, network), rooms)

    await database.write(work)


def forget_before(db: Connection, oldest: int) -> None:
    """Delete memories of which any part is older than a time, in microseconds since 1970."""
    rooms = _column(db, "SELECT room FROM memories WHERE begun < ?", oldest)
    db.execute("DELETE FROM memories WHERE begun < ?", [oldest])
    for room in rooms:
        invalidate_prompt_view(db, room)


async def scrub(database: Database) -> None:
    """Delete the names of rooms and conversations that are empty, and add a job that makes deleted
    episodes and summaries again. Raises Unavailable."""

    def work(db: Connection) -> None:
        db.execute(
            "DELETE FROM conversations WHERE NOT EXISTS"
            " (SELECT 1 FROM turns WHERE conversation_id = conversations.id)"
        )
        _forget_empty(db)
        db.execute("DELETE FROM jobs WHERE kind LIKE 'memory.%'")  # their keys name rooms

    await database.write(work)
    await Jobs(database).add(CONSOLIDATE, {})


def _column(db: Connection, sql: str, *values: str | int) -> set[Any]:
    return {row[0] for row in db.execute(sql, values)}


def _remove(db: Connection, ids: Collection[int], rooms: set[str]) -> None:
    """Delete memories, and record which episodes and summaries have to be made again. What is being
    made of turns of these rooms, or of the rooms of these memories, is void."""
    wanted, which = json.dumps(list(ids)), f"id IN {GIVEN}"
    rooms = rooms | _column(db, f"SELECT room FROM memories WHERE {which}", wanted)
    # Episodes made from notes (their key is "notes") cannot be made again: the notes are gone.
    db.execute(
        "INSERT INTO memory_gaps SELECT room, first_turn, max(last_turn) FROM memories"
        f" WHERE layer = 'episode' AND key = '' AND {which} GROUP BY room, first_turn"
        " ON CONFLICT (room, first_turn) DO UPDATE SET last_turn = excluded.last_turn",
        [wanted],
    )
    # The next summary begins with the first turn, and has to reach as far as the deleted one.
    db.execute(
        "UPDATE memory_rooms SET summary = 0,"
        " wanted = CASE WHEN summary > wanted THEN summary ELSE wanted END WHERE room IN"
        f" (SELECT room FROM memories WHERE layer = 'summary' AND {which})",
        [wanted],
    )
    db.execute(f"DELETE FROM memories WHERE {which}", [wanted])
    for room in sorted(rooms):
        invalidate_prompt_view(db, room)


def _forget_empty(db: Connection) -> None:
    """Delete watermarks and gaps of rooms that have neither turns nor memories."""
    for table in ("memory_gaps", "memory_rooms"):
        db.execute(
            f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM memories WHERE room ="
            f" {table}.room) AND NOT EXISTS (SELECT 1 FROM turns t JOIN conversations c"
            f" ON c.id = t.conversation_id WHERE c.room = {table}.room)"
        )
