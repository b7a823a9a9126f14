"""The services of a tendril for its medium: shared log, outbox, peers, reminders, privacy."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harnesses.core.services.metrics import TendrilMetrics, send_heartbeats
from harnesses.core.services.outbox import TendrilOutbox
from harnesses.core.services.peers import PeerService
from harnesses.core.services.privacy import PrivacyService
from harnesses.core.services.reminders import ReminderService, SayReminder
from harnesses.core.services.shared_log import TendrilLog
from harnesses.core.tendril.research import ResearchService
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.status import BACKUP_MARK, StatusFile, askable
from harnesses.core.tendril.turns import Turns
from llm.agent.trace import expire_runs
from llm.client.client import Heartbeat
from storage.chat_log.journal import Journal
from storage.db.database import Database
from storage.log import ChatLog
from storage.settings import StorageSettings, log_address, store_address

MAX_TOOLS, MAX_SUBJECT = 200, 200
"""The most tools, and characters of `asked_about`, of which the agent server takes note."""


@dataclass(frozen=True, slots=True, eq=False)
class MediumServices:
    """The services with which a tendril listens and speaks on its medium.

    `log` is the log that all tendrils share. `outbox` sends messages through other tendrils and
    `peers` asks them questions. `remind` stores reminders, `research` works on long questions,
    `privacy` handles opt-outs and erasure, and `metrics` are counters and gauges for Prometheus.
    """

    log: TendrilLog
    outbox: TendrilOutbox
    peers: PeerService
    remind: ReminderService
    research: ResearchService
    privacy: PrivacyService
    metrics: TendrilMetrics

    @classmethod
    @asynccontextmanager
    async def open(
        cls, resources: Resources, say_reminder: SayReminder, *, speaks: bool
    ) -> AsyncIterator[MediumServices]:
        """Open the log and outbox, create the services; `say_reminder` works only where the tendril
        `speaks` unasked. Raises StorageError and ConfigError."""
        name, clock, database = resources.name, resources.clock, resources.database
        config, agent = resources.configuration.config, resources.configuration.agent
        async with AsyncExitStack() as opened:
            # Only the IRC tendril keeps its own tables in the log's database. A second `Database`
            # for the same file would have a write lock of its own, and its writes would contend
            # with ours in SQLite.
            address, shared = log_address(config), database
            if address != database.address:
                shared = await opened.enter_async_context(Database.open(address))
            embeds = resources.client if config.section(StorageSettings).semantic else None
            journal = None  # a disk that takes no lines in SQLite would take no journal either
            if not isinstance(address, Path):
                with suppress(OSError):  # the local disk is full
                    journal = opened.enter_context(Journal(config.data, name).hold())
            # On leaving, all that was recorded is stored before the databases are closed.
            chat_log = await opened.enter_async_context(ChatLog.open(shared, journal))
            log = TendrilLog(shared, chat_log, name, clock, agent.zone, embeds)
            rules = await log.opt_outs.load()
            with suppress(OSError):
                await chat_log.recover(rules.keeps)
            messages = Database.open(store_address(config, "outbox"))
            outbox = TendrilOutbox(await opened.enter_async_context(messages), name)
            yield cls(
                log=log,
                outbox=outbox,
                peers=PeerService(outbox.database, name, partial(askable, config.data), clock),
                remind=ReminderService(
                    database,
                    clock,
                    lambda: resources.configuration.agent.zone_name,
                    say_reminder,
                    config.data / "run" / f"{name}-reminders.lock",
                ),
                research=ResearchService(resources, log, outbox, say_reminder if speaks else None),
                privacy=PrivacyService(log, database, resources.accounting, config, clock),
                metrics=TendrilMetrics(),
            )

    @property
    def is_database_away(self) -> bool:
        """True while PostgreSQL cannot be reached."""
        return self.log.database.is_away or self.outbox.database.is_away

    def disk_trouble(self, status: StatusFile) -> str:
        """Return why nothing can be written at the moment, "" if it can."""
        away = "the database cannot be reached" * self.is_database_away
        return self.log.chat_log.trouble or status.disk_trouble or away

    def background(self, resources: Resources, turns: Turns) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what runs in the background of every tendril, until cancelled."""
        status, data = resources.status, resources.configuration.config.data

        async def send() -> None:
            await status.became_ready.wait()
            await send_heartbeats(resources.client, resources.name, heartbeat)

        def heartbeat() -> Heartbeat:
            gauges: dict[str, float] = {"log_queue": self.log.chat_log.waiting}
            with suppress(OSError):  # there was no `terrarium backup` yet
                gauges["backup_age_seconds"] = time.time() - (data / BACKUP_MARK).stat().st_mtime
            return Heartbeat(
                state=status.state,
                asked_about=status.asked_about[:MAX_SUBJECT],
                tools=turns.tool_names()[:MAX_TOOLS],
                pending=turns.pending,
                tokens_today=resources.accounting.today(),
                counters=self.metrics.counters,
                gauges=self.metrics.gauges | gauges,
                disk_trouble=bool(self.disk_trouble(status)),
            )

        yield status.renew()
        yield resources.access.watch(resources.configuration.agent.model)
        yield expire_runs(
            resources.runs, lambda: resources.configuration.agent.trace_days, resources.clock
        )
        yield resources.configuration.prompts.mcp_servers.run()
        yield self.privacy.run()
        opt_outs = self.log.opt_outs  # whose rules are replaced when somebody opts out
        yield self.log.chat_log.keep_recovering(lambda event: opt_outs.opt_out_rules.keeps(event))
        yield send()
