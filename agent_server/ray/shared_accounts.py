"""Accounts of keys and budgets that all servers share, in the process of the queues.

They are initialised with today's rows of the usage table, to which each server adds its own
answers. So a successor of this process continues with the counts of its predecessor, except for the
windows of a minute. This module does not depend on Ray.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
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

DATABASE_PATIENCE = 5.0
"""Seconds to wait while another process writes to the server's database."""

MAX_REMEMBERED = 10_000
"""Number of the latest reservations that are remembered for repeated calls."""


class SharedAccounts:
    """The accounts in this process, for servers in others.

    Errors are returned: a raised exception would reach the other process in another form.
    """

    def __init__(self, config: Config, clock: SteadyClock | None = None) -> None:
        self._address = store_address(config, "server")
        self._accounts = ServerAccounts(config.section(UsageSettings).budgets, clock)
        self._restoring = asyncio.Lock()
        self._is_restored = False
        self._reserved: OrderedDict[str, Reservation | None] = OrderedDict()

    async def reserve(self, call: str, use: ExpectedUse) -> Reservation | ApiError | None:
        """Reserve the expected use of a request; None if no limit holds for it.

        A server that got no answer repeats its call, with the same unique id `call`. It then gets
        the reservation that was made, as it would settle only one of two.
        """
        try:
            await self._restore()
            # `ServerAccounts.reserve` never suspends, so a repeated call finds the first one's.
            if call not in self._reserved:
                self._reserved[call] = await self._accounts.reserve(use)
                if len(self._reserved) > MAX_REMEMBERED:
                    self._reserved.popitem(last=False)
            return self._reserved[call]
        except StorageError as error:
            log.warning("usage.unread", error=str(error))
            return EngineUnavailable("the usage of keys cannot be read now; ask again later")
        except ApiError as error:
            return error

    async def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation to the actual `tokens` and `cost`."""
        with suppress(StorageError):  # the next `reserve` reads the table then
            await self._restore()
        self._accounts.settle(reservation, tokens, cost)

    async def _restore(self) -> None:
        """Read today's usage from the table, once. Raises StorageError."""
        async with self._restoring:
            if not self._is_restored:
                async with Database.open(self._address, patience=DATABASE_PATIENCE) as database:
                    await self._accounts.restore(database)
                self._is_restored = True
