"""Memories as people see, correct and export them: their owners, and where they come from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from storage.chat_log.event import CHANNEL_PREFIXES, escape_name
from storage.db.database import Connection, Repository, writes
from storage.memory.memories import MANUAL, SEEN, Memory, invalidate_prompt_view, memory_of

Person = tuple[str, str]
"""A network, and the key of a person in memory there."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memories that somebody may see and change: those about the `people` that they are,
    everything of their private rooms and, if they may, of channels."""

    people: frozenset[Person]
    sees_channels: bool = False

    def may_see(self, memory: Memory) -> bool:
        """Return whether they may see and change a memory."""
        network, _, room = memory.room.partition("/")
        # A private room also has conversations (NETWORK/PERSON/NAME).
        person = room.partition("/")[0]
        own_room = any((network, person) == (known, escape_name(key)) for known, key in self.people)
        is_channel = room.startswith(tuple(CHANNEL_PREFIXES))
        return self.is_about(memory) or own_room or (self.sees_channels and is_channel)

    def is_about(self, memory: Memory) -> bool:
        """Return whether a memory is about them."""
        return (memory.room.partition("/")[0], memory.subject) in self.people


@dataclass(frozen=True, slots=True)
class SourcedMemory:
    """A memory, and the log event of the question in which it was said, 0 if that is not known."""

    memory: Memory
    event_id: int


class MemoryShelf(Repository):
    """The memories in a database, as far as a view allows."""

    async def visible(self, view: MemoryView) -> Sequence[SourcedMemory]:
        """Return the memories in a view by room and kind, each with the newest first."""
        rows = await self._database.fetch_all(
            "SELECT memories.*, (SELECT anchor FROM turns WHERE turns.id = first_turn) AS event"
            f" FROM memories WHERE {SEEN} ORDER BY room, CASE layer WHEN 'fact' THEN 0"
            " WHEN 'note' THEN 1 WHEN 'episode' THEN 2 ELSE 3 END, id DESC"
        )
        found = (SourcedMemory(memory_of(row), row["event"] or 0) for row in rows)
        return [each for each in found if view.may_see(each.memory)]

    @writes
    def correct(self, db: Connection, view: MemoryView, number: int, text: str) -> bool:
        """Replace the text of a memory, which then counts as asked for; False if there is none."""
        memory = _get(db, view, number)
        if memory is None:
            return False
        source = memory.subject if view.is_about(memory) else memory.source
        db.execute(
            "UPDATE memories SET text = ?, source = ?, manual = 1, confidence = ? WHERE id = ?",
            [text, source, MANUAL, number],
        )
        invalidate_prompt_view(db, memory.room)
        return True

    @writes
    def forget(self, db: Connection, view: MemoryView, numbers: Collection[int]) -> int:
        """Delete memories, which are not made again; return how many the view has of them."""
        found = [each for number in numbers if (each := _get(db, view, number))]
        db.executemany("DELETE FROM memories WHERE id = ?", [[each.id] for each in found])
        for room in {each.room for each in found}:
            invalidate_prompt_view(db, room)
        return len(found)


def _get(db: Connection, view: MemoryView, number: int) -> Memory | None:
    row = db.execute("SELECT * FROM memories WHERE id = ?", [number]).fetchone()
    memory = memory_of(row) if row else None
    return memory if memory and view.may_see(memory) else None
