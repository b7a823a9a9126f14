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
from agent_server.settings.server import ServerSettings
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.usage.api_keys import Key, Keys, digest

log = structlog.get_logger()

PAUSE = 0.5
"""Seconds between two looks at the file's version."""


class ApiKeyCache:
    """The owners of bearer keys.

    Without a configured key and as long as none was ever issued, the server is open to everybody
    who can reach it; whoever sends a key of it is known by its name all the same. Revoking the last
    key does not open it again.
    """

    def __init__(self, settings: ServerSettings) -> None:
        admin = settings.admin_key
        self._admin = digest(admin.get_secret_value()) if admin else None
        self._configured = {
            digest(secret.get_secret_value()): Key(name, is_own=True)
            for name, secret in settings.keys.items()
        }
        self._issued: Mapping[bytes, Key] = {}
        self.is_open = not self._has_configured

    @property
    def _has_configured(self) -> bool:
        return self._admin is not None or bool(self._configured)

    def authenticate(self, secret: bytes) -> Key | None:
        """Return the owner of `secret`, ANYBODY where no key is needed; None for a wrong key.

        Digests are compared, so the time it takes tells nothing of a key.
        """
        given = digest(secret)
        if self._admin and hmac.compare_digest(given, self._admin):
            return ADMIN
        owner = self._configured.get(given) or self._issued.get(given)
        return owner or (ANYBODY if self.is_open else None)

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
        self._issued = await keys.active()
        self.is_open = not self._has_configured and not await keys.exist()
