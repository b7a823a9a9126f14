"""Standby: one of several tendrils is active on our networks, the others listen.

The active tendril holds and renews the leases of all its networks (`storage.queues.leases`). A
standby is in the same channels under another nick. It sends and logs nothing, but buffers the
events of the last minute. When the leases expire it acquires them and claims the nick, logs the
events that the holder missed (`find_logged`), and answers the questions among them. A question
counts as answered if the holder was then seen to reply to its author. A command whose line the
holder has logged has taken effect and is not run again.

A holder that fails to renew its leases stops sending by itself before another can acquire them. It
continues once it can renew them, or ends with LeaseLost if it has been replaced.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog

from harnesses.core.commands.request import QUESTION_COMMANDS, UNLOGGED
from harnesses.core.errors import TendrilError
from harnesses.core.tendril.status import StatusFile
from harnesses.irc.channel_settings import LiveSettings
from harnesses.irc.event_handler import EventHandler
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.requests import to_log_event
from harnesses.irc.services import BotServices
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.networks import Networks, follow
from storage.chat_log.event import PendingEvent
from storage.db.database import Database
from storage.db.errors import StorageError, Unavailable
from storage.log import find_logged
from storage.queues.leases import Lease, LeaseLost, Leases, Renewal
from terrarium.supervision import root_cause, told_to_stop

LEASE_PREFIX = "irc/"
"""Prefix of the lease names; the network's name follows."""

LEASE_DURATION = timedelta(seconds=5)
"""Duration of a lease: how long a holder that stops renewing still counts as active."""

RENEW_INTERVAL, ACQUIRE_INTERVAL = 1.5, 0.5
"""Seconds between renewals by the holder, and between attempts of a standby to acquire leases."""

BUFFER_SECONDS = 60.0
"""Seconds for which a standby buffers events; who asked earlier no longer waits for an answer."""

MAX_BUFFERED = 10_000
"""Maximum number of buffered events."""

MAX_LAG = 2.0
"""Seconds by which the holder may receive an event later than we do. An event this close to the
holder's watermark may be missing in the log although we received it before."""

Work = Coroutine[Any, Any, None]

_log = structlog.get_logger()


class Standby:
    """Our participation in the leases of `networks`, which are stored in `database`.

    The networks send messages only while we hold them. Events are buffered until `pass_on`.
    """

    def __init__(self, database: Database, networks: Networks, status: StatusFile) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._database, self._networks, self._status = database, networks, status
        self.leases = Leases(database, holder)
        self._names = {name: f"{LEASE_PREFIX}{name}" for name in networks}
        self._time = asyncio.get_running_loop().time
        self._valid_until = 0.0
        self._watermark: float | None = None
        self._holders: dict[str, Lease] = {}
        self._leases_read_at = 0.0
        self._buffer: deque[tuple[float, IrcEvent]] = deque(maxlen=MAX_BUFFERED)
        self._pass_on: Callable[[IrcEvent], None] | None = None
        self._is_connected = False
        for network in networks.values():
            network.restrict(self.is_active)

    def is_active(self) -> bool:
        """Return whether we may send messages: no other process can hold the leases now."""
        return self._time() < self._valid_until

    async def run(self, run_active: Callable[[], Work]) -> None:
        """Stand by until no other process is active, then run `run_active` under the leases.

        Returns when `run_active` does, or when told to stop during standby. Raises what
        `run_active` raises, StorageError, and LeaseLost if another process has taken over.
        """
        started: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as tasks:

                def start(work: Work) -> asyncio.Task[None]:
                    started.append(tasks.create_task(work))
                    return started[-1]

                try:
                    if await self.try_acquire() or await self.stand_by(start):
                        start(self.keep_leases())
                        await run_active()
                finally:
                    # Most of them run until cancelled, and the group waits for all its tasks.
                    for task in started:
                        task.cancel()
        except ExceptionGroup as group:
            # LeaseLost takes precedence: it cancels the active work, which may fail as well.
            raise root_cause(group.subgroup(LeaseLost) or group) from group
        finally:
            # Released, so that a standby can take over at once; we stop sending first.
            self._valid_until = 0.0
            try:
                await self.leases.release()
            except StorageError as error:  # the leases expire by themselves
                _log.warning("irc.lease_not_released", error=str(error))

    def background(self, services: BotServices, events: EventHandler) -> list[Work]:
        """Return the coroutines that feed `events` with the events of all networks."""
        return [*self._connect(), self.pass_events_on(services, events)]

    async def try_acquire(self) -> bool:
        """Acquire the leases if nobody holds any of them; return whether we hold them now.

        Raises Unavailable, and TendrilError if the holder is on other networks than we are.
        """
        # Ages of watermarks are counted back from before the request: however long it takes, none
        # covers an event that the holder may not have logged.
        looked = self._time()
        found = await self.leases.find(LEASE_PREFIX)
        require_same_networks(found, self._names)
        self._holders, self._leases_read_at = {lease.name: lease for lease in found}, looked
        if any(lease.is_held for lease in found):
            return False
        # Our validity is counted from before the request, the lease from when the database handles
        # it: whatever the latency, we stop sending before anybody else can acquire the lease.
        began = self._time()
        if await self.leases.acquire(self._names.values(), LEASE_DURATION):
            self._valid_until = began + LEASE_DURATION.total_seconds()
            return True
        return False

    def _connect(self) -> list[Work]:
        """Return the coroutines that connect to the networks, unless these run already."""
        is_connected, self._is_connected = self._is_connected, True
        networks = () if is_connected else self._networks.values()
        return [network.run(self.on_event) for network in networks]

    async def stand_by(self, start: Callable[[Work], asyncio.Task[None]]) -> bool:
        """Stand by until we hold the leases; return False if we are told to stop before."""
        self._status.stand_by(f"stands by for {' '.join(self._networks)}")
        renewing = start(self._status.renew())
        wanted = {name: network.settings for name, network in self._networks.items()}
        for network in self._networks.values():
            # With the password, nick recovery would disconnect (GHOST) whoever has the standby
            # nick, such as another standby.
            other = {"nick": f"{network.settings.nick}_", "nickserv_password": None}
            network.settings = network.settings.model_copy(update=other)
        follow(self._networks, await LiveSettings.load(self._database))
        for work in self._connect():
            start(work)
        acquired, stopping = start(self.until_acquired(wanted)), start(told_to_stop())
        await asyncio.wait({acquired, stopping}, return_when=asyncio.FIRST_COMPLETED)
        renewing.cancel()
        self._status.take_over()
        if not acquired.done():
            await self._networks.quit("Terrarium stops")
            return False
        # Wait for the end of `told_to_stop`: it removes its signal handlers, and must not do so
        # after the active tendril has installed its own.
        stopping.cancel()
        await asyncio.wait({stopping})
        return True

    async def until_acquired(self, wanted: Mapping[str, NetworkSettings]) -> None:
        """Wait until we have acquired the leases, then claim the nicks of the `wanted` settings."""
        acquired = False
        while not acquired:
            try:
                acquired = await self.try_acquire()
            except Unavailable as error:
                _log.warning("irc.lease_unknown", error=str(error))
            if not acquired:  # a process that dies notifies nobody, so poll
                await asyncio.sleep(ACQUIRE_INTERVAL)
        _log.warning("irc.taking_over", networks=sorted(self._networks))
        for name, network in self._networks.items():
            network.claim_nick(wanted[name])
            network.recheck()

    async def keep_leases(self) -> None:
        """Renew the leases until cancelled. Raises LeaseLost if another process holds one.

        While the database is unavailable the renewal is retried; once the leases have expired we
        send no messages until a renewal succeeds.
        """
        while True:
            began = self._time()
            # An age, since the clocks of the machines and of the database need not agree.
            mark = self._watermark
            settled = None if mark is None else timedelta(seconds=began - mark)
            renewals = {}
            for name, network in self._networks.items():
                source = network.session.source
                is_known = network.connected.is_set() and source.user and source.host
                renewals[self._names[name]] = Renewal(str(source) if is_known else "", settled)
            try:
                await self.leases.renew(renewals, LEASE_DURATION)
            except Unavailable as error:
                _log.warning("irc.lease_not_renewed", error=str(error))
            else:
                was_active = self.is_active()
                self._valid_until = began + LEASE_DURATION.total_seconds()
                for network in () if was_active else self._networks.values():
                    network.recheck()
            await asyncio.sleep(RENEW_INTERVAL)

    async def pass_events_on(self, services: BotServices, events: EventHandler) -> None:
        """Process the events buffered during standby, then pass on live ones, until cancelled.

        The watermark up to which they are in the log is published in the leases, for a later
        holder.
        """
        # Events that arrive while `take_over` awaits are buffered too. Nothing is awaited between
        # the last, empty `drain` and the assignment, so no event is lost or overtaken.
        while heard := self.drain():
            await take_over(services, events, heard)
        self._pass_on = events.on_event
        while True:
            # Taken before the flush: events that arrive during the flush need not be covered by it.
            began = self._time()
            with suppress(Unavailable):  # the log reports it
                await services.log.flush()
                self._watermark = began
            await asyncio.sleep(RENEW_INTERVAL)

    def on_event(self, event: IrcEvent) -> None:
        """Handle an event: buffer it during standby, pass it on after the takeover."""
        if self._pass_on:
            self._pass_on(event)
            return
        now = self._time()
        while self._buffer and self._buffer[0][0] < now - BUFFER_SECONDS:
            self._buffer.popleft()
        if event.type == "INVITE" or event.batch_type:
            return  # an invitation of the standby nick, or history, which the holder got live
        if event.channel is None and not self.is_active():
            return  # a private message to the standby nick
        # What the holder said counts as our own: it must be logged so, and shows what is answered.
        # The whole source is compared: once the holder is gone, anybody can take its nick.
        lease = self._holders.get(self._names[event.network])
        fold = self._networks[event.network].fold
        source = f"{event.nick}!{event.user}@{event.host}"
        if lease and lease.known_as and fold(source) == fold(lease.known_as):
            event = replace(event, own=True)
        self._buffer.append((now, event))

    def drain(self) -> list[tuple[IrcEvent, bool]]:
        """Remove and return the buffered events of the last `BUFFER_SECONDS`, oldest first, each
        with whether the last holder's watermark covers it."""
        kept, self._buffer = self._buffer, deque(maxlen=MAX_BUFFERED)
        since, heard = self._time() - BUFFER_SECONDS, list[tuple[IrcEvent, bool]]()
        for time, event in kept:
            # The last holder's watermark, by the event loop's clock.
            lease = self._holders.get(self._names[event.network])
            mark = self._leases_read_at - lease.settled.total_seconds() if lease else 0.0
            if time >= since:
                heard.append((event, time < mark - MAX_LAG))
        return heard


async def take_over(
    services: BotServices, handler: EventHandler, buffered: Sequence[tuple[IrcEvent, bool]]
) -> None:
    """Pass the events received during standby on to the event handler: log those that are missing
    in the log and answer unanswered questions.

    With each event is given whether the last holder's watermark covers it: then the holder has
    logged it, or chose not to (opt-outs). Raises StorageError.
    """
    policy, commands = services.policy, handler.commands.known
    redactions = [event for event, _ in buffered if event.type == "REDACT"]
    buffered = [each for each in buffered if each[0].type != "REDACT"]
    lines = [policy.hear(services.networks[event.network], event) for event, _ in buffered]
    logged = await find_logged(
        services.log, [to_log_event(line.event, line.place) for line in lines]
    )
    waiting: dict[tuple[str, str, str], deque[int]] = {}
    for number, line in enumerate(lines):
        network, event = line.network, line.event
        # Our replies begin with the addressee, as in "alice: hello". A reply counts for the oldest
        # open question of its addressee.
        person = event.text.partition(":")[0] if event.own else line.who.nick
        asker = network.name, network.fold(event.channel or ""), network.fold(person)
        asked = policy.parse_words(line, services.prefix(line.place))
        is_known = asked and (asked.command in commands or asked.question)
        is_ours = asked and is_known and asked.command not in UNLOGGED
        if is_ours and policy.should_process(line):
            waiting.setdefault(asker, deque()).append(number)
        elif event.own and (questions := waiting.get(asker)):
            questions.popleft()
    unanswered, missing = {number for each in waiting.values() for number in each}, 0
    for number, (event, below_watermark) in enumerate(buffered):
        known = logged.get(number)
        if known is None and not below_watermark:
            missing += 1
            handler.on_event(event, answers=number in unanswered)
        elif known and number in unanswered:
            # Its line is in the log already. Commands other than questions are not run again.
            line = lines[number]
            asked = policy.take_trigger(line, services.prefix(line.place))
            if asked and asked.command in QUESTION_COMMANDS:
                pending = PendingEvent.stored(known.id, known)
                handler.answer(commands[asked.command], policy.request(line, asked.words, pending))
    for event in redactions:
        handler.on_event(event)
    _log.info("irc.taken_over", heard=len(lines), missing=missing, unanswered=len(unanswered))


def require_same_networks(found: Sequence[Lease], networks: Collection[str]) -> None:
    """Raise TendrilError if a tendril is active on other networks than exactly `networks`.

    The active tendril processes all queues of the log, including entries for networks that it is
    not on and cannot deliver to.
    """
    # All leases of a holder count, expired ones too: they may expire one after another.
    by_holder: dict[str, set[str]] = {}
    for lease in found:
        by_holder.setdefault(lease.holder, set()).add(lease.name.removeprefix(LEASE_PREFIX))
    for lease in found:
        theirs = by_holder[lease.holder]
        if lease.is_held and theirs != set(networks):
            raise TendrilError(
                f"another IRC tendril with the same log is on {' '.join(sorted(theirs))}, not on"
                f" {' '.join(sorted(networks))}: name the same networks in [irc] for both, or give"
                " each a log of its own ([storage] db_path or url)"
            )


async def require_no_other(database: Database, networks: Networks) -> None:
    """Raise TendrilError if a tendril with the log in `database` is active on any network."""
    found = await Leases(database, "").find(LEASE_PREFIX)
    require_same_networks(found, networks)
    for lease in found:
        if lease.is_held:
            network = lease.name.removeprefix(LEASE_PREFIX)
            raise TendrilError(
                f"another IRC tendril is active on {network}, with the same log;"
                " stop that one, or set standby = true in [irc] for both"
            )
