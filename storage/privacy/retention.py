"""Retention: the sweep that removes data older than the configured number of days."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

from storage.chat_log import deletion, statistics
from storage.chat_log.event import EVERYTHING
from storage.db.database import Connection, to_micros
from storage.db.secure_delete import COPY_LIFETIME, remove_copies
from storage.log import ChatLog, Query
from storage.memory.deletion import forget_before
from storage.queues.reports import Reports
from storage.settings import StorageSettings

_WITHOUT_QUESTION = """
DELETE FROM runs WHERE anchor > 0 AND outcome != 'running'
    AND NOT EXISTS (SELECT 1 FROM events WHERE id = anchor)"""
_EVENTS_PER_STEP = 2_000  # events that are read, and then removed, at once


async def expire(log: ChatLog, settings: StorageSettings, now: datetime) -> int:
    """Remove events and reports older than the retention of their place, and the bot's memory of
    that time; return the number of events. Old copies are removed too. Raises StorageError."""
    database, address = log.database, log.database.address
    if isinstance(address, Path):
        await asyncio.to_thread(remove_copies, address, address.parent, COPY_LIFETIME)
    removed = 0
    for channel in await log.read(statistics.channels, EVERYTHING):
        days = settings.days_of(channel.place)
        query = Query(
            scope=EVERYTHING,
            network=channel.place.network,
            channel=channel.place.channel,
            until=now - timedelta(days=days),
            limit=_EVENTS_PER_STEP,
        )
        while days and (events := await log.find(query, newest=False)):
            removed += await deletion.remove(database, [event.id for event in events])
    if removed:
        await log.scrub()
        await database.execute(_WITHOUT_QUESTION)
    await Reports(database).expire(settings.days_of, now)
    # Turns and memories have no retention by channel, only the general one.
    if settings.retention_days:
        oldest = to_micros(now - timedelta(days=settings.retention_days))

        def delete(db: Connection) -> None:
            db.execute("DELETE FROM turns WHERE time < ?", [oldest])
            db.execute("DELETE FROM runs WHERE started < ?", [oldest])
            db.execute("DELETE FROM skills WHERE room != '' AND time < ?", [oldest])
            forget_before(db, oldest)

        await database.write(delete)
    return removed
