"""The accounts of keys and budgets that all servers share, in the process of the queues.

They begin with what the usage table has of today, into which each server writes its own answers: a
successor of this process goes on with what its predecessor has counted, except for the windows of a
minute. Nothing here knows Ray.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from agent_server.errors import ApiError, EngineUnavailable
from agent_server.metering.accounts import ExpectedUse, Reservation, ServerAccounts
from agent_server.settings.prices import UsageSettings
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.settings import store_address
from terrarium.clock import SteadyClock
from terrarium.config import Config

log = structlog.get_logger()

PATIENCE = 5.0
"""Seconds to wait for another process that writes to the server's file."""


class SharedAccounts:
    """The accounts in this process, for servers in others.

    Errors are returned, as they would reach the other process in another form if raised.
    """

    def __init__(self, config: Config, clock: SteadyClock | None = None) -> None:
        self._address = store_address(config, "server")
        self._accounts = ServerAccounts(config.section(UsageSettings).budgets, clock)
        self._restoring = asyncio.Lock()
        self._is_restored = False

    async def reserve(self, use: ExpectedUse) -> Reservation | ApiError | None:
        """Reserve what a request expects to use."""
        try:
            await self._restore()
            return await self._accounts.reserve(use)
        except StorageError as error:
            log.warning("usage.unread", error=str(error))
            return EngineUnavailable("the usage of keys cannot be read now; ask again later")
        except ApiError as error:
            return error

    async def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation."""
        with suppress(StorageError):  # else the next `reserve` reads the table
            await self._restore()
        self._accounts.settle(reservation, tokens, cost)

    async def _restore(self) -> None:
        """Read what was used today, once. Raises StorageError."""
        async with self._restoring:
            if not self._is_restored:
                async with Database.open(self._address, patience=PATIENCE) as database:
                    await self._accounts.restore(database)
                self._is_restored = True
