"""The backlog of a room: what is still to become memories, read at once."""

from __future__ import annotations

from datetime import timedelta

from storage.db.database import Database
from storage.memory.conversations import Conversations, Turn
from storage.memory.memories import Memories, Memory, MemoryKind, RoomBacklog, Watermarks
from tests.kit.lines import NOON

ROOM = "irc/#frogs"


async def test_a_backlog_has_the_turns_that_no_job_has_seen_and_the_oldest_notes(
    database: Database,
) -> None:
    memories = Memories(database)
    assert await memories.backlog(ROOM, 2) == RoomBacklog(Watermarks(ROOM), [], [], [])
    for number in range(3):
        message = {"role": "user", "content": f"how many frogs? {number}", "name": "bob"}
        turn = Turn(number + 1, NOON + timedelta(minutes=number), (message,))
        await Conversations(database).add(f"{ROOM}/bob", turn, ROOM, "bob")
    turns = await memories.turns(ROOM, 0, 1_000, 100)
    for turn_read in reversed(turns):
        note = Memory(
            layer=MemoryKind.NOTE,
            room=ROOM,
            text=f"noted of {turn_read.id}",
            time=NOON,
            first_turn=turn_read.id,
            last_turn=turn_read.id,
        )
        await memories.add(note)
    watermarks = await memories.progress(ROOM)
    backlog = await memories.backlog(ROOM, 2)
    assert backlog.watermarks == watermarks
    assert [turn_id for turn_id, _ in backlog.sizes] == [each.id for each in turns]
    assert all(size > 40 for _, size in backlog.sizes)
    assert backlog.gaps == []
    oldest = await memories.latest(ROOM, MemoryKind.NOTE)
    assert backlog.notes == [each.id for each in oldest[:2]]
