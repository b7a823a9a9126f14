"""Removal of events from the log, its index and its counters; all of it raises Unavailable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from storage import log_index
from storage.chat_log.event_table import rows_of
from storage.connection import Dialect
from storage.db.database import Connection, Database

_EMPTY = """
SELECT id FROM channels c
WHERE private = 1 AND NOT EXISTS (SELECT 1 FROM events WHERE channel_id = c.id)"""
_EVENTS_PER_STEP = 500  # events removed in one transaction, while other writers wait


async def remove(database: Database, ids: Sequence[int]) -> int:
    """Remove events, in batches so that no writer waits long; return their number."""

    def remove_batch(db: Connection, batch: Sequence[int]) -> int:
        rows = rows_of(db, batch).fetchall()
        private = {row[0] for row in db.execute("SELECT id FROM channels WHERE private = 1")}
        log_index.remove_events(db, rows, private)
        for table, key in (("events", "id"), ("arrivals", "event_id")):
            db.executemany(f"DELETE FROM {table} WHERE {key} = ?", [row[:1] for row in rows])
        # An empty private conversation must go too, because its name identifies a person.
        for table, key in (("totals", "channel_id"), ("week", "channel_id"), ("channels", "id")):
            db.execute(f"DELETE FROM {table} WHERE {key} IN ({_EMPTY})")
        return len(rows)

    removed = 0
    for start in range(0, len(ids), _EVENTS_PER_STEP):
        batch = ids[start : start + _EVENTS_PER_STEP]
        removed += await database.write(partial(remove_batch, batch=batch))
    return removed


async def scrub(database: Database) -> None:
    """Rewrite what of the index still holds words of removed events; drop empty partitions."""

    def drop(db: Connection, number: int) -> None:
        sql = "SELECT 1 FROM partitions WHERE number = ? AND lines = 0"
        if db.execute(sql, [number]).fetchone():  # unless a line has been written meanwhile
            log_index.text_index(db).drop(db, number)
            db.execute("UPDATE partitions SET removed = 0 WHERE number = ?", [number])

    def merge(db: Connection, number: int, begin: bool) -> bool:
        # Once there is no more to merge, the index has no words of removed lines. A step takes a
        # few milliseconds.
        more = log_index.text_index(db).merge(db, number, begin=begin)
        if not more:
            db.execute("UPDATE partitions SET removed = 0 WHERE number = ?", [number])
        return more

    partitions = await database.fetch_all("SELECT number, lines FROM partitions WHERE removed > 0")
    for number, lines in partitions:
        if lines == 0:
            await database.write(partial(drop, number=number))
            continue
        if database.dialect is Dialect.POSTGRES:  # where there is nothing to merge
            await database.execute_outside_transaction(f"VACUUM words_{int(number)}")
        # Each step is a separate transaction, so that other processes can write in between.
        more = await database.write(partial(merge, number=number, begin=True))
        while more:
            more = await database.write(partial(merge, number=number, begin=False))
