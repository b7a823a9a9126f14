"""Retention: the sweep that removes data older than the configured number of days."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

from storage.chat_log.event import EVERYTHING, Place
from storage.db.database import Database, to_micros
from storage.db.secure_delete import COPY_LIFETIME, remove_copies
from storage.log import ChatLog, Query
from storage.memory.deletion import forget_before
from storage.settings import StorageSettings

_WITHOUT_QUESTION = """
DELETE FROM runs WHERE anchor > 0 AND outcome != 'running'
    AND NOT EXISTS (SELECT 1 FROM events WHERE id = anchor)"""
_EVENTS_PER_STEP = 2_000  # events that are read, and then removed, at once


async def expire(database: Database, log: ChatLog, settings: StorageSettings, now: datetime) -> int:
    """Remove events older than the retention of their place, and the bot's memory of that time;
    return the number of events.

    `now` is an aware time. Copies that were made before a migration are removed after a week.
    Raises StorageError.
    """
    address = database.address
    if isinstance(address, Path):
        await asyncio.to_thread(remove_copies, address, address.parent, COPY_LIFETIME)
    removed = 0
    for channel in await log.channels(EVERYTHING):
        if days := settings.days_of(channel.place):
            removed += await _expire_place(log, channel.place, now - timedelta(days=days))
    if removed:
        await log.scrub()
        async with database.transaction() as db:
            await db.execute(_WITHOUT_QUESTION)
    # Turns and memories have no retention by channel, only the general one.
    if settings.retention_days:
        oldest = to_micros(now - timedelta(days=settings.retention_days))
        async with database.transaction() as db:
            await db.execute("DELETE FROM turns WHERE time < ?", [oldest])
            await db.execute("DELETE FROM runs WHERE started < ?", [oldest])
            await db.execute("DELETE FROM skills WHERE room != '' AND time < ?", [oldest])
            await forget_before(db, oldest)
    return removed


async def _expire_place(log: ChatLog, place: Place, until: datetime) -> int:
    query = Query(
        scope=EVERYTHING,
        network=place.network,
        channel=place.channel,
        until=until,
        limit=_EVENTS_PER_STEP,
    )
    removed = 0
    while events := await log.find(query, newest=False):
        removed += await log.remove([event.id for event in events])
    return removed
