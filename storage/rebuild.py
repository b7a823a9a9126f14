"""The index and the counts of a file whose events were written before there were any."""

from __future__ import annotations

import aiosqlite

from storage import counts, text_index

_STEP = 10_000  # events in memory at once


async def rebuild(connection: aiosqlite.Connection) -> None:
    """Index and count all events, inside a transaction."""
    async with connection.execute("SELECT id FROM channels WHERE private") as cursor:
        private = {row[0] for row in await cursor.fetchall()}
    last = 0
    while True:
        sql = "SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?"
        async with connection.execute(sql, [last, _STEP]) as cursor:
            rows = [tuple(row) for row in await cursor.fetchall()]
        if not rows:
            return
        last = rows[-1][0]
        drift = max(row[0] - row[3] // 1000 for row in rows)
        await text_index.add(connection, rows, drift)
        await counts.add(connection, rows, private)
