"""The index and the counts of a file whose events were written before there were any."""

from __future__ import annotations

import sqlite3

from storage.chat_log import counters, fts_index

_STEP = 10_000  # events in memory at once


def rebuild(connection: sqlite3.Connection) -> None:
    """Index and count all events, inside a transaction."""
    private = {row[0] for row in connection.execute("SELECT id FROM channels WHERE private")}
    last = 0
    while True:
        sql = "SELECT * FROM events WHERE id > ? ORDER BY id LIMIT ?"
        rows = connection.execute(sql, [last, _STEP]).fetchall()
        if not rows:
            return
        last = rows[-1][0]
        drift = max(row[0] - row[3] // 1000 for row in rows)
        fts_index.add(connection, rows, drift)
        counters.add(connection, rows, private)
