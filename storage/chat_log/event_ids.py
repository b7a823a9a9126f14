"""Ids that follow time.

The id of an event is its time in milliseconds since 1970, or the next number that is free. So one
order serves for reading, for searching the newest first and for finding a time, and history that
is imported years later takes its place among what was there.

Those who follow the log ask for what comes after the last id they saw. So that they miss nothing,
a line that comes at most `LATE` after its time is numbered after the newest of all, and one that is
said now at most `CLOCK`, whatever a server's clock has been put back to; only an older one, which
is history, goes back in time. An id is therefore never before its event's time and seldom much
after it; `AllocatedIds.drift` says by how much at most.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

LATE = 300_000  # milliseconds that a line may be on its way: a net split, a slow server
CLOCK = 86_400_000  # milliseconds that the time of a line may be behind although it is said now
_NEAR = 1_024  # ids looked at behind each time to find one that is free
_TAKEN = (
    "SELECT DISTINCT events.id FROM json_each(?) t"
    " JOIN events ON events.id BETWEEN t.value AND t.value + ?"
)


@dataclass(frozen=True, slots=True)
class AllocatedIds:
    """Ids for a batch, in its order, and the most that one is ahead of its time."""

    ids: Sequence[int]
    drift: int


def allocate_ids(
    connection: sqlite3.Connection, times: Sequence[int], late: int = LATE
) -> AllocatedIds:
    """Ids for events with these times (microseconds), inside the transaction that stores them.
    Those that are `late` by more milliseconds are history."""
    newest = int(connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()[0])
    wanted = [max(1, time // 1000) for time in times]
    ids: list[int] = []
    history: list[int] = []  # positions of those that go back in time
    for position, begin in enumerate(wanted):
        if begin < newest - late:
            history.append(position)
            ids.append(0)
        else:
            newest = max(begin, newest + 1)
            ids.append(newest)
    if history:
        free = _FreeIds(connection, set(ids))
        for position, found in zip(
            history, free.after([wanted[position] for position in history]), strict=True
        ):
            ids[position] = found
    drift = max((found - begin for found, begin in zip(ids, wanted, strict=True)), default=0)
    return AllocatedIds(ids, drift)


class _FreeIds:
    """Free ids among those of the file and of the batch."""

    def __init__(self, connection: sqlite3.Connection, taken: set[int]) -> None:
        self._connection = connection
        self._taken = taken

    def after(self, begins: Sequence[int]) -> Sequence[int]:
        """The first free id from each of `begins` on; for equal ones they grow."""
        near = _NEAR
        next_of = {begin: begin for begin in begins}
        found: list[int] = []
        known = self._load_taken(next_of.values(), near)
        for begin in begins:
            candidate = next_of[begin]
            while True:
                while candidate in self._taken:
                    candidate += 1
                if candidate <= known[begin]:
                    break
                near *= 2
                known[begin] = (self._load_taken([candidate], near))[candidate]
            self._taken.add(candidate)
            next_of[begin] = candidate + 1
            found.append(candidate)
        return found

    def _load_taken(self, begins: Collection[int], near: int) -> dict[int, int]:
        """Learn which ids are taken behind each of `begins`; down to where that is known."""
        starts = sorted(begins)
        rows = self._connection.execute(_TAKEN, [json.dumps(starts), near])
        self._taken.update(row[0] for row in rows)
        return {start: start + near for start in starts}
