"""Failover of the IRC tendril: standing by, taking over, and doing the work under a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from harnesses.core.errors import TendrilError, root_cause
from harnesses.core.tendril.status import StatusFile
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.failover.standby import PREFIX, Standby, require_same_networks
from harnesses.irc.failover.takeover import Takeover
from harnesses.irc.services import BotServices
from harnesses.irc.transport.networks import Networks
from storage.db.database import Address, Database
from storage.log import ChatLog
from storage.queues.leases import LeaseLost, Leases
from terrarium.supervision import told_to_stop

Work = Coroutine[Any, Any, None]


class Failover:
    """Has one of several tendrils do the work, where the setting `standby` allows several."""

    def __init__(self, networks: Networks, status: StatusFile) -> None:
        self._networks, self._status = networks, status
        self._standby: Standby | None = None

    @property
    def is_enabled(self) -> bool:
        """True if several tendrils may run for these networks."""
        return self._networks.settings.standby

    async def run(self, address: Address, run_active: Callable[[], Work]) -> None:
        """Stand by until nobody else is active, then run `run_active`. Returns when that does, or
        when we are told to stop before. Raises what it raises, StorageError, and LeaseLost when
        another process has taken over."""
        async with Database.open(address, checked=True) as database:
            self._standby = standby = Standby(database, self._networks)
            try:
                async with asyncio.TaskGroup() as tasks, _cancelled(tasks) as start:
                    if await self._become_active(standby, start):
                        start(standby.keep())
                        await run_active()
            except ExceptionGroup as group:
                raise root_cause(group.subgroup(LeaseLost) or group) from group
            finally:
                await standby.release()

    async def open(self, database: Database, log: ChatLog) -> None:
        """Have the log refuse our lines once another process has taken over; where we share no
        work, make sure that nobody else does it. Raises StorageError, TendrilError."""
        if self._standby:
            self._standby.guard(log)
            return
        found = await Leases(database, "").find(PREFIX)
        require_same_networks(found, self._networks)
        for lease in found:
            if lease.is_held:
                raise TendrilError(
                    f"another IRC tendril is active on {lease.name.removeprefix(PREFIX)}, with the"
                    " same log; stop that one, or set standby = true in [irc] for both"
                )

    def background(self, services: BotServices, events: EventHandler) -> list[Work]:
        """Return what has to run for `events` to be fed with all that happens on the networks."""
        standby = self._standby
        if standby is None:
            return [network.run(events.on_event) for network in self._networks.values()]
        standing_by = standby.is_connected
        hearing = [] if standing_by else standby.connect()
        return [*hearing, _take_over(standby, services, events)]

    async def _become_active(
        self, standby: Standby, start: Callable[[Work], asyncio.Task[None]]
    ) -> bool:
        """Stand by until we hold the leases; False when we are told to stop before."""
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
            stopping.cancel()
            await asyncio.wait({stopping})
            return True
        await self._networks.quit("Terrarium stops")
        return False


async def _take_over(standby: Standby, services: BotServices, events: EventHandler) -> None:
    """Deal with what was heard while standing by, then with what happens, until cancelled."""
    takeover = Takeover(services, events)
    while heard := standby.take_heard():
        await takeover.run(heard)
    standby.pass_on(events.on_event)
    await standby.note_settled(services.log)


@asynccontextmanager
async def _cancelled(
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[Callable[[Work], asyncio.Task[None]]]:
    """Yield what starts a task; all of them are cancelled at the end."""
    started: list[asyncio.Task[None]] = []

    def start(work: Work) -> asyncio.Task[None]:
        started.append(tasks.create_task(work))
        return started[-1]

    try:
        yield start
    finally:
        for task in started:
            task.cancel()
