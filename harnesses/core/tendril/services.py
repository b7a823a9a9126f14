"""The services of a tendril for its medium: shared log, outbox, peers, reminders, privacy, metrics,
and the heartbeats that bring those to the agent server."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from harnesses.core.services.peers import PeerService, TendrilOutbox
from harnesses.core.services.privacy import PrivacyService
from harnesses.core.services.reminders import ReminderService, SayReminder
from harnesses.core.services.shared_log import TendrilLog
from harnesses.core.tendril.research import ResearchService
from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.status import BACKUP_MARK, StatusFile, askable
from harnesses.core.tendril.turns import Turns
from llm.agent.trace import expire_runs
from llm.client.client import AgentClient, Heartbeat
from llm.messages.errors import ModelError, RequestRejected
from storage.chat_log.journal import Journal
from storage.db.database import Database
from storage.log import ChatLog
from storage.settings import StorageSettings, log_address, store_address

MAX_TOOLS, MAX_SUBJECT = 200, 200
"""The most tools, and characters of `asked_about`, of which the agent server takes note."""


MAX_METRICS = 50
"""The most counters of one tendril, and the most gauges."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_INTERVAL = 10.0  # seconds; the server forgets a tendril after three that were missed
_NO_ENDPOINT = frozenset({404, 405})  # the answers of other servers with an OpenAI API

_log = structlog.get_logger()


class TendrilMetrics:
    """The counters and gauges that a tendril defines, for `/metrics` of the agent server.

    Every user of the server's machine can read `/metrics`, so neither a name nor a value may reveal
    anything private.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Add a non-negative amount to a counter, which starts at 0 in each process. Raises
        ValueError for an invalid name, too many names, or a negative amount."""
        if amount < 0:
            raise ValueError(f"the counter {name} only grows; use set for a number that falls")
        self._check(name, self.counters)
        self.counters[name] = self.counters.get(name, 0) + amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises ValueError for an invalid name or too many names."""
        self._check(name, self.gauges)
        self.gauges[name] = value

    def _check(self, name: str, known: dict[str, float]) -> None:
        if name in known:
            return
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a metric: use lower-case letters, digits and _"
            )
        if len(known) >= MAX_METRICS:
            raise ValueError(f"a tendril has at most {MAX_METRICS} counters and as many gauges")


async def send_heartbeats(client: AgentClient, name: str, report: Callable[[], Heartbeat]) -> None:
    """Send the report of the tendril `name` every ten seconds, until cancelled.

    Returns when the server has no such endpoint. Any other rejection may end by itself, as when the
    key has reported too many tendrils, so the next report is sent all the same.
    """
    logged = 0  # the status of the last rejection, so that a lasting one is logged once
    while True:
        try:
            await client.send_heartbeat(name, report())
        except RequestRejected as error:
            if error.status in _NO_ENDPOINT:
                _log.debug("heartbeat.refused", status=error.status)
                return
            if error.status != logged:
                logged = error.status
                _log.warning("heartbeat.refused", status=error.status, reason=str(error))
        except ModelError:  # away, or it refuses our key: `client.trouble` has the latter
            pass
        await asyncio.sleep(_INTERVAL)


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
        away = "the database cannot be reached" if self.is_database_away else ""
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
