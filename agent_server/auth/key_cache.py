"""A cache of the valid API keys: no request waits for the file.

Keys that are made or revoked while the server runs count within `PAUSE`.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from agent_server.metering.request_context import ADMIN, ANYBODY
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.usage.api_keys import Key, Keys, digest

log = structlog.get_logger()

PAUSE = 0.5
"""Seconds between two looks at the file's version."""


class ApiKeyCache:
    """The owners of bearer keys.

    Without an admin key and as long as no key was ever issued, the server is open to everybody who
    can reach it; whoever sends a key of it is known by its name all the same. Revoking the last key
    does not open it again.
    """

    def __init__(self, admin: str | None) -> None:
        self._admin = digest(admin) if admin else None
        self._keys: Mapping[bytes, Key] = {}
        self.is_open = admin is None

    def authenticate(self, secret: bytes) -> Key | None:
        """Return the owner of `secret`, ANYBODY where no key is needed; None for a wrong key.

        Digests are compared, so the time it takes tells nothing of a key.
        """
        given = digest(secret)
        if self._admin and hmac.compare_digest(given, self._admin):
            return ADMIN
        return self._keys.get(given) or (ANYBODY if self.is_open else None)

    @asynccontextmanager
    async def refreshing(self, database: Database) -> AsyncIterator[None]:
        """Read the keys, and again whenever somebody has changed them. Raises Unavailable."""
        await self._read(Keys(database))
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._keep_reading(database))
            try:
                yield
            finally:
                reader.cancel()

    async def _keep_reading(self, database: Database) -> None:
        keys = Keys(database)
        while True:
            try:
                async for _ in database.changes():
                    await self._read(keys)
            except Unavailable as error:
                log.warning("keys.unread", error=str(error))
            await asyncio.sleep(PAUSE)

    async def _read(self, keys: Keys) -> None:
        self._keys = await keys.active()
        self.is_open = self._admin is None and not await keys.exist()
