"""An in-memory cache of the valid API keys: no request waits for the database.

Keys issued or revoked while the server runs take effect when the database reports the change,
usually within a second.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import structlog

from agent_server.metering.request_context import ADMIN, ANYBODY
from agent_server.settings.server import ServerSettings
from storage.db.database import Database
from storage.db.errors import Unavailable
from storage.usage.api_keys import Key, Keys, digest
from terrarium.cancellation import run_beside

log = structlog.get_logger()

REFRESH_PAUSE = 0.5
"""Seconds until the keys are read again after the database was unavailable."""


class ApiKeyCache:
    """The owners of bearer keys.

    While no key is configured and none was ever issued, the server is open: it answers everybody
    who can reach it, but still knows the owners of launch keys by name. Revoking the last issued
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
        self._has_configured = bool(self._admin or self._configured)
        self.is_open = not self._has_configured

    def authenticate(self, secret: bytes) -> Key | None:
        """Return the owner of `secret`, ANYBODY if the server is open, or None for a wrong or
        expired key.

        Keys are found and compared by their digests, so that timing reveals nothing about a valid
        key.
        """
        given = digest(secret)
        if self._admin and hmac.compare_digest(given, self._admin):
            return ADMIN
        owner = self._configured.get(given) or self._issued.get(given)
        if owner and owner.expires and owner.expires <= datetime.now(UTC):
            return None
        return owner or (ANYBODY if self.is_open else None)

    @asynccontextmanager
    async def refreshing(self, database: Database) -> AsyncIterator[None]:
        """Read the keys, and again whenever the database changes. Raises Unavailable if the first
        reading fails."""
        keys = Keys(database)

        async def keep_reading() -> None:
            while True:
                try:
                    async for _ in database.changes():
                        await self._read(keys)
                except Unavailable as error:
                    # The cached keys stay valid meanwhile.
                    log.warning("keys.unread", error=str(error))
                await asyncio.sleep(REFRESH_PAUSE)

        await self._read(keys)
        async with run_beside(keep_reading()):
            yield

    async def _read(self, keys: Keys) -> None:
        # In this order: a first key is known before the server closes to requests without one.
        self._issued = await keys.active()
        self.is_open = not self._has_configured and not await keys.exist()
