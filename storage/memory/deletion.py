"""Deletion from a room's memory when a person, or a conversation, is forgotten.

Facts and notes go by themselves. An episode or a summary goes whole when words of theirs may be in
it; that it is to be made again, of the turns that remain, is noted in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from storage.chat_log.opt_outs import person_of
from storage.connection import Dialect
from storage.db.database import AsyncConnection, Database
from storage.memory.memories import Memory, MemoryKind, forget_shown, memory_of
from storage.queues.jobs import Jobs

TEND = "memory.tend"
"""The kind of the job that looks for what is to be made, in one room or in all."""

_MADE = (MemoryKind.EPISODE, MemoryKind.SUMMARY)


@dataclass(frozen=True, slots=True)
class DeletedTurn:
    """A turn that is removed."""

    id: int
    room: str
    conversation: str


async def forget_conversation(db: AsyncConnection, name: str) -> None:
    """Remove whatever came from a conversation, inside the transaction that removes its turns."""
    async with db.execute(
        "SELECT id FROM memories WHERE conversation = ?1 UNION"
        " SELECT memory_id FROM memory_sources WHERE conversation = ?1",
        [name],
    ) as rows:
        ids = [row[0] for row in await rows.fetchall()]
    await _remove(db, ids)
    await _forget_empty(db)


async def forget_people(
    database: Database,
    names: Collection[str],
    in_room: Callable[[str], bool],
    turns: Sequence[DeletedTurn],
    quoted: Callable[[str], bool],
) -> int:
    """Remove what is about people or was said by them, in rooms that are `in_room`, and whatever
    else the removed `turns` are in, or has words of theirs (`quoted`); how many memories.

    A fact that another one with the same name said of themselves, in a turn that stays, stays.
    Raises Unavailable.
    """
    people = {person_of(name) for name in names}
    gone = {turn.id for turn in turns}
    async with database.transaction() as db:
        async with db.execute("SELECT id FROM turns") as rows:
            left = {row[0] for row in await rows.fetchall()} - gone
        sources = await _sources(db)
        ids = [
            memory.id
            for memory in await _fetch_memories(db)
            if _came_from(memory, turns, sources.get(memory.id, set()))
            or (
                in_room(memory.room) and _is_of(memory, people, left, sources.get(memory.id, set()))
            )
            or quoted(f"{memory.key} {memory.text}")
        ]
        await _remove(db, ids)
    return len(ids)


async def redact(database: Database, network: str, name: str) -> None:
    """Make whatever has words of somebody in it again, without them: they have opted out. Raises
    Unavailable."""
    async with (
        database.transaction() as db,
        db.execute(
            "SELECT memory_id FROM memory_sources JOIN memories ON id = memory_id"
            " WHERE person = ?1 AND lower(substr(room, 1, length(?2) + 1)) = lower(?2) || '/'",
            [person_of(name), network],
        ) as rows,
    ):
        await _remove(db, [row[0] for row in await rows.fetchall()])


async def forget_before(db: AsyncConnection, oldest: int) -> None:
    """Remove what was made of anything older than a time, in microseconds since 1970."""
    async with db.execute("SELECT DISTINCT room FROM memories WHERE begun < ?", [oldest]) as rows:
        rooms = [row[0] for row in await rows.fetchall()]
    await db.execute("DELETE FROM memories WHERE begun < ?", [oldest])
    for room in rooms:
        await forget_shown(db, room)


async def scrub(database: Database) -> None:
    """Write the index of memories anew, so that nothing of removed ones is left, and drop what
    names rooms and conversations of which nothing remains. What is lost for others is made again
    soon. Raises Unavailable."""
    async with database.transaction() as db:
        await db.execute(
            "DELETE FROM conversations WHERE NOT EXISTS"
            " (SELECT 1 FROM turns WHERE conversation_id = conversations.id)"
        )
        await _forget_empty(db)
        await db.execute("DELETE FROM jobs WHERE kind LIKE 'memory.%'")  # their keys name rooms
        if database.dialect is Dialect.SQLITE:
            await db.execute("INSERT INTO memory_text (memory_text) VALUES ('rebuild')")
    await Jobs(database).add(TEND, {})


def _is_of(
    memory: Memory, people: Collection[str], left: Collection[int], sources: set[tuple[str, str]]
) -> bool:
    """Return True if a memory is about one of the people, or made of what they said."""
    if memory.layer in _MADE:
        return any(person in people for _, person in sources)
    own = memory.source in people
    return (own or memory.subject in people) and not (own and memory.last_turn in left)


def _came_from(memory: Memory, turns: Sequence[DeletedTurn], sources: set[tuple[str, str]]) -> bool:
    """Return True if one of the removed turns is in a memory."""
    conversations = {name for name, _ in sources} | {memory.conversation}
    return any(
        turn.room == memory.room
        and memory.first_turn <= turn.id <= memory.last_turn
        and turn.conversation in conversations
        for turn in turns
    )


async def _fetch_memories(db: AsyncConnection) -> list[Memory]:
    async with db.execute("SELECT * FROM memories") as rows:
        return [memory_of(row) for row in await rows.fetchall()]


async def _sources(db: AsyncConnection) -> dict[int, set[tuple[str, str]]]:
    found: dict[int, set[tuple[str, str]]] = {}
    async with db.execute("SELECT memory_id, conversation, person FROM memory_sources") as rows:
        for memory_id, conversation, person in await rows.fetchall():
            found.setdefault(memory_id, set()).add((conversation, person))
    return found


async def _remove(db: AsyncConnection, ids: Sequence[int]) -> None:
    """Remove memories; those that were made of turns are to be made again."""
    wanted = json.dumps(ids)
    which = "id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
    async with db.execute(f"SELECT DISTINCT room FROM memories WHERE {which}", [wanted]) as rows:
        rooms = [row[0] for row in await rows.fetchall()]
    await db.execute(
        "INSERT INTO memory_gaps SELECT room, first_turn, max(last_turn) FROM memories"
        f" WHERE layer = 'episode' AND key = '' AND {which} GROUP BY room, first_turn"
        " ON CONFLICT (room, first_turn) DO UPDATE SET last_turn = excluded.last_turn",
        [wanted],
    )
    await db.execute(
        "UPDATE memory_rooms SET folded = 0,"
        " wanted = CASE WHEN folded > wanted THEN folded ELSE wanted END WHERE room IN"
        f" (SELECT room FROM memories WHERE layer = 'summary' AND {which})",
        [wanted],
    )
    await db.execute(f"DELETE FROM memories WHERE {which}", [wanted])
    for room in rooms:
        await forget_shown(db, room)


async def _forget_empty(db: AsyncConnection) -> None:
    """Drop what is known of rooms that have neither turns nor memories."""
    for table in ("memory_gaps", "memory_rooms"):
        await db.execute(
            f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM memories WHERE room ="
            f" {table}.room) AND NOT EXISTS (SELECT 1 FROM turns t JOIN conversations c"
            f" ON c.id = t.conversation_id WHERE c.room = {table}.room)"
        )
