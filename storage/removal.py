"""Taking events out of the log, with every trace of them in the index and the counts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from storage import counts, text_index
from storage.database import Database

_EMPTY = """
SELECT id FROM channels c
WHERE private AND NOT EXISTS (SELECT 1 FROM events WHERE channel_id = c.id)"""
_STEP = 500  # events of one transaction, which others wait for


async def remove(database: Database, ids: Sequence[int]) -> int:
    """Remove events, some at a time, so that nobody who writes waits long; how many there were.

    Raises Unavailable.
    """
    return sum(
        [
            await _removed(database, ids[start : start + _STEP])
            for start in range(0, len(ids), _STEP)
        ]
    )


async def _removed(database: Database, ids: Sequence[int]) -> int:
    wanted = json.dumps(ids)
    async with database.transaction() as connection:
        async with connection.execute(
            "SELECT * FROM events WHERE id IN (SELECT value FROM json_each(?))", [wanted]
        ) as cursor:
            rows = [tuple(row) for row in await cursor.fetchall()]
        async with connection.execute("SELECT id FROM channels WHERE private") as cursor:
            private = {row[0] for row in await cursor.fetchall()}
        await text_index.take(connection, rows)
        await counts.take(connection, rows, private)
        await connection.executemany("DELETE FROM events WHERE id = ?", [row[:1] for row in rows])
        # A private conversation bears the name of a person.
        for table, key in (("totals", "channel_id"), ("week", "channel_id"), ("channels", "id")):
            await connection.execute(f"DELETE FROM {table} WHERE {key} IN ({_EMPTY})")
    return len(rows)


async def scrub(database: Database) -> None:
    """Write the pieces of the index anew that still hold words of removed events, and drop the
    stretches of which nothing is left. Raises Unavailable."""
    stretches = await database.all("SELECT number, lines FROM partitions WHERE removed > 0")
    for number, lines in stretches:
        if lines == 0:
            await _drop(database, number)
        else:
            await _merge(database, number)


async def _drop(database: Database, number: int) -> None:
    async with database.transaction() as connection:
        sql = "SELECT 1 FROM partitions WHERE number = ? AND lines = 0"
        async with connection.execute(sql, [number]) as cursor:
            if await cursor.fetchone():  # nothing has been written meanwhile
                await text_index.drop(connection, number)


async def _merge(database: Database, number: int) -> None:
    more, begin = True, True
    while more:
        async with database.transaction() as connection:
            more = await text_index.merge(connection, number, begin=begin)
            begin = False
            if not more:
                await connection.execute(
                    "UPDATE partitions SET removed = 0 WHERE number = ?", [number]
                )
