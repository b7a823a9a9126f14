"""The IRC tendril: logs all that happens on its channels and answers those who ask."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

from harnesses.core.tendril.base import Tendril
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.policy.retention import run_retention
from harnesses.irc.replies.outbox_delivery import deliver, open_outbox
from harnesses.irc.services import BotServices
from harnesses.irc.transport.network import Network
from harnesses.irc.transport.networks import Networks
from llm.web.fetcher import Fetcher
from llm.web.titles import LIMITS
from storage.settings import StorageSettings, log_path
from terrarium.clock import Clock
from terrarium.config import Config

_POLL = 1.0  # seconds between looks at the networks' state


class IrcTendril(Tendril):
    """A tendril on IRC networks. While it serves, `services` is what its parts work with."""

    name: ClassVar[str] = "irc"

    services: BotServices
    events: EventHandler

    def __init__(
        self, config: Config, clock: Clock | None = None, fetcher: Fetcher | None = None
    ) -> None:
        super().__init__(config, clock)
        self.networks = Networks(config)
        self._fetcher = fetcher or Fetcher(limits=LIMITS)

    def database_path(self) -> Path:
        """Return the file of the log, which the conversations share."""
        return log_path(self.config)

    async def serve(self) -> None:
        """Be on all networks; answers are made beside the log, which does not wait for them."""
        async with AsyncExitStack() as stack:
            outbox = await stack.enter_async_context(open_outbox(self.config.data))
            tasks = asyncio.TaskGroup()
            self.services = await stack.enter_async_context(
                BotServices.open(
                    self, self.networks, self._fetcher, tasks.create_task, self._queues.drop
                )
            )
            self.events = EventHandler(self.services)
            await self.events.prepare()
            await stack.enter_async_context(tasks)
            log, storage = self.services.log, self.config.section(StorageSettings)
            for work in (
                *self.events.background(),
                *(network.run(self.events.on_event) for network in self.networks.values()),
                deliver(outbox, self.networks, self.services.sender),
                run_retention(self.database, log, storage),
                self._report_state(),
            ):
                tasks.create_task(work)
            if self.services.semantic_index:
                tasks.create_task(self.services.semantic_index.index())
            try:
                await asyncio.Event().wait()
            finally:
                await self.networks.quit("Terrarium stops")

    def reload(self) -> str:
        """Read all files again; return a sentence for people. Raises ConfigError, with all as
        before."""
        return f"{super().reload()} How to connect counts from the next connection on."

    def apply_config(self, config: Config) -> None:
        """Follow another configuration of the same networks. Raises ConfigError."""
        self.networks.check(config)
        super().apply_config(config)
        self.networks.configure(config)
        self.services.configure()

    async def _report_state(self) -> None:
        """Keep the status file up to date, until cancelled."""
        while True:
            if away := self.networks.incomplete:
                self.status.waiting(f"not yet on {', '.join(each.name for each in away)}")
                await away[0].until_joined()
            else:
                known = [_whereabouts(network) for network in self.networks.values()]
                self.status.ready(", ".join([*known, *self.events.proactive.summary()]))
                await asyncio.sleep(_POLL)


def _whereabouts(network: Network) -> str:
    return f"{network.nick} on {' '.join(network.channels)} of {network.name}"
