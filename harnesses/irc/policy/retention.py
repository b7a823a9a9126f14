"""Retention: removal of expired events, at startup and every hour."""

from __future__ import annotations

import asyncio

import structlog

from storage.db.database import Database
from storage.db.errors import StorageError
from storage.log import ChatLog
from storage.privacy.retention import expire
from storage.settings import StorageSettings
from terrarium.clock import SteadyClock

_SWEEP_INTERVAL = 3600.0  # seconds

_log = structlog.get_logger()


async def run_retention(database: Database, log: ChatLog, settings: StorageSettings) -> None:
    """Remove expired events, now and every hour, until cancelled."""
    # If the time of day jumped ahead, it would make young events look expired.
    clock = SteadyClock()
    while True:
        try:
            removed = await expire(database, log, settings, clock.now())
        except StorageError as error:  # another hour is soon enough
            _log.error("irc.not_expired", error=str(error))
        else:
            _log.info("irc.expired", events=removed)
        await asyncio.sleep(_SWEEP_INTERVAL)
