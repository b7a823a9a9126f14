"""The IRC tendril: logs its channels, answers questions and runs commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import structlog

from harnesses.core.services.question_tools import Door
from harnesses.core.tendril.base import Tendril
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.questions.channel_view import find_owner, present_in
from harnesses.irc.services import BotServices
from harnesses.irc.standby import Standby, require_no_other
from harnesses.irc.transport.networks import Networks, describe, follow
from llm.web.fetcher import Fetcher
from storage.chat_log.event import Identity, PendingEvent, Place
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.privacy.retention import expire
from storage.queues.reminders import Reminder
from storage.settings import StorageSettings, log_address
from terrarium.clock import Clock, SteadyClock
from terrarium.config import Config

_SWEEP_INTERVAL = 3600.0  # seconds between removals of expired events
_POLL_INTERVAL = 1.0  # seconds between status reports
_MEASURE_INTERVAL = 30.0  # seconds between measurements for metrics, each with a PING
_POLL_INTERVAL_WAITING = 0.1  # the same while a network is incomplete
_DELIVERED = 3  # times the line budget: what an operator's job delivers is no reply in between
_REMINDER_RETRY = timedelta(seconds=15)  # while we cannot write to the place of a reminder
_ABSENT_RETRY = timedelta(minutes=2)  # while its owner is away
_JOIN_TIMEOUT = 10.0  # seconds to wait for all channels once connected, before we speak anyway

_log = structlog.get_logger()


class IrcTendril(Tendril):
    """The tendril for IRC networks. `services` and `events` exist while its resources are open."""

    name: ClassVar[str] = "irc"
    asked_about: ClassVar[str] = "the IRC channels: who is there now, and what was said"
    uses_log_database: ClassVar[bool] = True

    services: BotServices
    events: EventHandler

    def __init__(
        self, config: Config, clock: Clock | None = None, fetcher: Fetcher | None = None
    ) -> None:
        super().__init__(config, clock)
        self.networks = Networks(config)
        self._fetcher = fetcher
        self._tasks = asyncio.TaskGroup()
        self._standby: Standby | None = None

    @property
    def shares_work(self) -> bool:
        """True if several processes may run, one active and the others as standbys."""
        return self.networks.settings.standby

    @asynccontextmanager
    async def open_resources(self) -> AsyncIterator[None]:
        """Open the resources of every tendril, then the services of IRC.

        Raises StorageError, and TendrilError when another IRC tendril of this log is in the way.
        """
        async with super().open_resources():
            self.services = await BotServices.open(self, self.networks, self._fetcher, self._tasks)
            self.events = EventHandler(self.services)
            await self.events.prepare()
            if self._standby:  # once another process has taken over, the log refuses our lines
                self.log.chat_log.check = self._standby.leases.check
            else:
                await require_no_other(self.database, self.networks)
            yield

    async def run(self) -> None:
        """Serve until told to stop; with `standby`, only while holding the lease. Raises what
        `serve` raises, and LeaseLost when another process has taken over."""
        if not self.shares_work:
            await super().run()
            return
        async with Database.open(log_address(self.config), checked=True) as database:
            self._standby = Standby(database, self.networks, self.status)
            await self._standby.run(super().run)

    async def serve(self) -> None:
        """Run networks, event handling and background tasks until cancelled, then quit IRC.

        Answers run as separate tasks, so that logging never waits for one.
        """
        networks, on_event = self.networks.values(), self.events.on_event
        async with self._tasks as tasks:
            for work in (
                *self.events.background(),
                *(
                    self._standby.background(self.services, self.events)
                    if self._standby
                    else [network.run(on_event) for network in networks]
                ),
                self._expire(),
                self._report_state(),
                self._keep_measuring(),
            ):
                tasks.create_task(work)
            if self.log.line_embedding:
                tasks.create_task(self.log.line_embedding.run())
            try:
                await asyncio.Event().wait()
            finally:
                await self.networks.quit("Terrarium stops")

    async def say(self, place: Place, text: str) -> bool:
        """Say a text on a channel; return False while that is not possible. A place without a
        network means the first one on which we are in that channel."""
        return await self.say_quoting(place, text, frozenset())

    async def say_quoting(self, place: Place, text: str, quotes: frozenset[int]) -> bool:
        """Say a text as `say` does, and log which lines it quotes."""
        for network in self.networks.values():
            if place.network not in ("", network.name) or not network.is_channel(place.channel):
                continue
            if network.reaches(place.channel):
                there, sender = Place(network.name, place.channel), self.services.sender
                target = sender.target(network, there)
                budget = _DELIVERED * target.budget
                return await sender.say(replace(target, quotes=quotes, budget=budget), text)
        return False

    async def say_reminder(self, reminder: Reminder, text: str) -> timedelta | None:
        """Say a reminder on its channel, or privately to its owner; return the delay before the
        next try, None once it has been said."""
        services, owner, place = self.services, reminder.owner, reminder.place
        network = self.networks.get(place.network)
        if network is None:
            return _REMINDER_RETRY
        who, recipient = Identity(owner.nick, owner.user, owner.host, owner.account), place.channel
        if reminder.private:
            found = await find_owner(network, owner)
            if found is None:
                return _ABSENT_RETRY
            who, recipient = found, found.nick
            place = Place(network.name, who.room(network.fold))
        elif not network.reaches(place.channel):
            return _REMINDER_RETRY
        target = services.sender.target(network, place)
        target = replace(
            target,
            recipient=recipient,
            nick=who.nick,
            logged=target.logged and not services.hides(network, who),
            # The line that asked for it, so that erasing that line erases this one too.
            answers=PendingEvent.stored(reminder.question_event_id),
        )
        return None if await services.sender.say(target, text) else _REMINDER_RETRY

    async def until_speaking(self) -> None:
        """Wait until one network is connected, and has joined all its channels or had ten seconds
        to do so."""
        networks = self.networks.values()
        await _first(*(network.connected.wait() for network in networks))
        with suppress(TimeoutError):
            async with asyncio.timeout(_JOIN_TIMEOUT):
                await _first(*(network.all_joined.wait() for network in networks))

    def tools_for(self, door: Door) -> list[object]:
        """Return the owners of the tools of a question, which know who is on the channels now."""
        present = door.log.present or present_in(self.services, door.log.scope)
        return super().tools_for(replace(door, log=replace(door.log, present=present)))

    def reload(self) -> str:
        """Reload the configuration and all files; return a sentence for people. Raises ConfigError,
        and then nothing has changed."""
        return f"{super().reload()} Connection settings apply from the next connection on."

    def apply_config(self, config: Config) -> None:
        """Apply another configuration: networks that are new connect, those that are gone quit.
        Raises ConfigError."""
        # The two calls that can raise come first, so that a wrong configuration changes nothing.
        self.networks.check(config)
        super().apply_config(config)
        new, gone = self.networks.configure(config)
        follow({network.name: network for network in new}, self.services.live)
        self.services.configure()
        for network in new:
            self._tasks.create_task(network.run(self.events.on_event))
        for network in gone:
            self._tasks.create_task(network.quit("no longer configured"))

    async def _expire(self) -> None:
        """Remove expired events from the log, now and every hour, until cancelled."""
        # If the time of day jumped ahead, it would make young events look expired.
        clock, settings = SteadyClock(), self.config.section(StorageSettings)
        while True:
            try:
                removed = await expire(self.log.chat_log, settings, clock.now())
            except StorageError as error:  # another hour is soon enough
                _log.error("irc.not_expired", error=str(error))
            else:
                _log.info("irc.expired", events=removed)
            await asyncio.sleep(_SWEEP_INTERVAL)

    async def measure(self) -> None:
        """Update the metrics of the networks, all together, and of the outbox."""
        networks = list(self.networks.values())
        lags = await asyncio.gather(*(each.lag() for each in networks))
        self.metrics.counters |= {
            "lines": sum(each.lines for each in networks),
            "refused": sum(each.refused for each in networks),
            "reconnects": sum(each.losses for each in networks),
        }
        self.metrics.gauges |= {
            "networks_connected": sum(each.connected.is_set() for each in networks),
            "channels_joined": sum(len(each.roster.channels) for each in networks),
            "lag_seconds": max((lag for lag in lags if lag is not None), default=0.0),
        }
        with suppress(StorageError):  # `disk_trouble` tells
            self.metrics.set("outbox", len(await self.outbox.waiting(self.name)))

    async def _keep_measuring(self) -> None:
        while True:
            await self.measure()
            await asyncio.sleep(_MEASURE_INTERVAL)

    async def _report_state(self) -> None:
        """Keep the status file up to date, until cancelled."""
        while True:
            if self._standby:
                self.metrics.set("lease_held", self._standby.is_active())
            if away := [each for each in self.networks.values() if not each.joins_answered]:
                self.status.waiting("; ".join(map(describe, away)))
                await asyncio.sleep(_POLL_INTERVAL_WAITING)
            elif trouble := self.services.log.trouble:
                self.status.waiting(f"the disk: {trouble}")
                await asyncio.sleep(_POLL_INTERVAL)
            else:
                self.status.ready(", ".join(map(describe, self.networks.values())))
                await asyncio.sleep(_POLL_INTERVAL)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several coroutines, then cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
