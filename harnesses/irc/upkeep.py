"""What the IRC tendril does for the log beside writing it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import structlog

from storage.chat_log import ChatLog
from storage.database import Database
from storage.errors import StorageError
from storage.retention import expire
from storage.settings import StorageSettings

_EVERY = 3600.0  # seconds

_log = structlog.get_logger()


async def sweep(database: Database, log: ChatLog, settings: StorageSettings) -> None:
    """Remove what is older than it may be, now and every hour."""
    while True:
        try:
            removed = await expire(database, log, settings, datetime.now(UTC))
        except StorageError as error:  # another hour is soon enough
            _log.error("irc.not_expired", error=str(error))
        else:
            _log.info("irc.expired", events=removed)
        await asyncio.sleep(_EVERY)
