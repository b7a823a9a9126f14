"""Failover of the IRC tendril: standby, takeover, and active operation under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from harnesses.core.errors import TendrilError
from harnesses.core.tendril.status import StatusFile
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.failover.standby import LEASE_PREFIX, Standby, require_same_networks
from harnesses.irc.failover.takeover import Takeover
from harnesses.irc.services import BotServices
from harnesses.irc.transport.networks import Networks
from storage.db.database import Address, Database
from storage.log import ChatLog
from storage.queues.leases import LeaseLost, Leases
from terrarium.supervision import root_cause, told_to_stop

Work = Coroutine[Any, Any, None]


class Failover:
    """Makes sure that only one tendril is active, where the setting `standby` allows several."""

    def __init__(self, networks: Networks, status: StatusFile) -> None:
        self._networks, self._status = networks, status
        self._standby: Standby | None = None

    @property
    def is_enabled(self) -> bool:
        """True if several tendrils may run for these networks (the setting `standby`)."""
        return self._networks.settings.standby

    async def run(self, address: Address, run_active: Callable[[], Work]) -> None:
        """Stand by until no other process is active, then run `run_active` under the leases.

        Returns when `run_active` does, or when told to stop during standby. Raises what
        `run_active` raises, StorageError, and LeaseLost if another process has taken over.
        """
        async with Database.open(address, checked=True) as database:
            self._standby = standby = Standby(database, self._networks)
            try:
                async with asyncio.TaskGroup() as tasks, _cancelled(tasks) as start:
                    if await self._become_active(standby, start):
                        start(standby.keep())
                        await run_active()
            except ExceptionGroup as group:
                # LeaseLost takes precedence: it cancels the active work, which may fail as well.
                raise root_cause(group.subgroup(LeaseLost) or group) from group
            finally:
                await standby.release()

    async def open(self, database: Database, log: ChatLog) -> None:
        """Make `log` refuse our lines once another process has taken over.

        Without standby, check instead that no other tendril is active on any network with the same
        log. Raises StorageError, and TendrilError if one is.
        """
        if self._standby:
            self._standby.guard(log)
            return
        found = await Leases(database, "").find(LEASE_PREFIX)
        require_same_networks(found, self._networks)
        for lease in found:
            if lease.is_held:
                network = lease.name.removeprefix(LEASE_PREFIX)
                raise TendrilError(
                    f"another IRC tendril is active on {network}, with the same log;"
                    " stop that one, or set standby = true in [irc] for both"
                )

    def background(self, services: BotServices, events: EventHandler) -> list[Work]:
        """Return the coroutines that feed `events` with the events of all networks."""
        standby = self._standby
        if standby is None:
            return [network.run(events.on_event) for network in self._networks.values()]
        standing_by = standby.is_connected
        hearing = [] if standing_by else standby.connect()
        return [*hearing, _take_over(standby, services, events)]

    async def _become_active(
        self, standby: Standby, start: Callable[[Work], asyncio.Task[None]]
    ) -> bool:
        """Stand by until we hold the leases; return False if we are told to stop before."""
        if await standby.try_acquire():
            return True
        self._status.stand_by(f"stands by for {' '.join(self._networks)}")
        renewing = start(self._status.renew())
        await standby.prepare()
        for work in standby.connect():
            start(work)
        acquired, stopping = start(standby.until_acquired()), start(told_to_stop())
        await asyncio.wait({acquired, stopping}, return_when=asyncio.FIRST_COMPLETED)
        renewing.cancel()
        self._status.take_over()
        if acquired.done():
            # Wait for the end of `told_to_stop`: it removes its signal handlers, and must not do
            # so after the active tendril has installed its own.
            stopping.cancel()
            await asyncio.wait({stopping})
            return True
        await self._networks.quit("Terrarium stops")
        return False


async def _take_over(standby: Standby, services: BotServices, events: EventHandler) -> None:
    """Process the events buffered during standby, then pass on live ones, until cancelled."""
    takeover = Takeover(services, events)
    # Events that arrive while `run` awaits are buffered too. Nothing is awaited between the last,
    # empty `drain` and `pass_on`, so no event is lost or overtaken.
    while heard := standby.drain():
        await takeover.run(heard)
    standby.pass_on(events.on_event)
    await standby.advance_watermark(services.log)


@asynccontextmanager
async def _cancelled(
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[Callable[[Work], asyncio.Task[None]]]:
    """Yield a function that starts a task in `tasks`; on exit all these tasks are cancelled."""
    started: list[asyncio.Task[None]] = []

    def start(work: Work) -> asyncio.Task[None]:
        started.append(tasks.create_task(work))
        return started[-1]

    try:
        yield start
    finally:
        # Most of them run until cancelled, and the group waits for all of its tasks.
        for task in started:
            task.cancel()
