"""Standby: one of several tendrils is active on our networks, the others listen.

The active tendril holds and renews the leases of all its networks (`storage.queues.leases`). A
standby is in the same channels under another nick. It sends and logs nothing, but buffers the
events of the last minute. When the leases expire it acquires them and claims the nick;
`harnesses.irc.failover.takeover` then decides what to log and answer.

A holder that fails to renew its leases stops sending by itself before another can acquire them. It
continues once it can renew them, or ends with LeaseLost if it has been replaced.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import structlog

from harnesses.core.errors import TendrilError
from harnesses.irc.channel_settings import load_channel_settings
from harnesses.irc.protocol.events import IrcEvent
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.network import Network
from storage.db.database import Database
from storage.db.errors import StorageError, Unavailable
from storage.log import ChatLog
from storage.queues.leases import Lease, Leases, Renewal

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

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BufferedEvent:
    """An event received during standby.

    `below_watermark` is set if the last holder's watermark covers it: the holder has logged it, or
    chose not to, so a takeover must not log it.
    """

    event: IrcEvent
    below_watermark: bool


@dataclass(frozen=True, slots=True)
class _Buffered:
    """A buffered event with the time of its receipt by the event loop's clock."""

    event: IrcEvent
    time: float


class Standby:
    """Our participation in the leases of `networks`, which are stored in `database`.

    The networks send messages only while we hold them. Events are buffered until `pass_on`.
    """

    def __init__(self, database: Database, networks: Mapping[str, Network]) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._database, self._networks = database, networks
        self._leases = Leases(database, holder)
        self._names = lease_names(networks)
        self._wanted = {name: network.settings for name, network in networks.items()}
        self._time = asyncio.get_running_loop().time
        self._valid_until = 0.0
        self._watermark: float | None = None
        self._holders: dict[str, Lease] = {}
        self._leases_read_at = 0.0
        self._buffer: deque[_Buffered] = deque(maxlen=MAX_BUFFERED)
        self._on_event: Callable[[IrcEvent], None] = self._buffer_event
        self.is_connected = False
        for network in networks.values():
            network.restrict(self.is_active)

    def is_active(self) -> bool:
        """Return whether we may send messages: no other process can hold the leases now."""
        return self._time() < self._valid_until

    async def try_acquire(self) -> bool:
        """Acquire the leases if nobody holds any of them; return whether we hold them now.

        Raises Unavailable, and TendrilError if the holder is on other networks than we are.
        """
        # Ages of watermarks are counted back from before the request: however long it takes, none
        # covers an event that the holder may not have logged.
        looked = self._time()
        found = await self._leases.find(LEASE_PREFIX)
        require_same_networks(found, self._names)
        self._holders, self._leases_read_at = {lease.name: lease for lease in found}, looked
        if any(lease.is_held for lease in found):
            return False
        # Our validity is counted from before the request, the lease from when the database handles
        # it: whatever the latency, we stop sending before anybody else can acquire the lease.
        began = self._time()
        if await self._leases.acquire(self._names.values(), LEASE_DURATION):
            self._valid_until = began + LEASE_DURATION.total_seconds()
            return True
        return False

    async def prepare(self) -> None:
        """Configure the networks with the standby nick and the channels that admins have set.

        Raises StorageError.
        """
        _, overrides = await load_channel_settings(self._database)
        for name, network in self._networks.items():
            network.settings = _as_standby(self._wanted[name])
            for channel, key in overrides.channels(name).items():
                network.part(channel) if key is None else network.join(channel, key)

    def connect(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines that connect to the networks and receive their events."""
        self.is_connected = True
        return [network.run(self.on_event) for network in self._networks.values()]

    async def until_acquired(self) -> None:
        """Wait until we have acquired the leases, then claim the nicks."""
        while not await self._try_again():  # noqa: ASYNC110
            await asyncio.sleep(ACQUIRE_INTERVAL)  # a process that dies notifies nobody, so poll
        _log.warning("irc.taking_over", networks=sorted(self._networks))
        for name, network in self._networks.items():
            network.claim_nick(self._wanted[name])
            network.recheck()

    async def _try_again(self) -> bool:
        try:
            return await self.try_acquire()
        except Unavailable as error:
            _log.warning("irc.lease_unknown", error=str(error))
            return False

    async def keep(self) -> None:
        """Renew the leases until cancelled. Raises LeaseLost if another process holds one.

        While the database is unavailable the renewal is retried; once the leases have expired we
        send no messages until a renewal succeeds.
        """
        while True:
            began = self._time()
            # An age, since the clocks of the machines and of the database need not agree.
            mark = self._watermark
            settled = None if mark is None else timedelta(seconds=began - mark)
            renewals = {
                self._names[name]: Renewal(_known_as(network), settled)
                for name, network in self._networks.items()
            }
            try:
                await self._leases.renew(renewals, LEASE_DURATION)
            except Unavailable as error:
                _log.warning("irc.lease_not_renewed", error=str(error))
            else:
                was_active = self.is_active()
                self._valid_until = began + LEASE_DURATION.total_seconds()
                if not was_active:
                    for network in self._networks.values():
                        network.recheck()
            await asyncio.sleep(RENEW_INTERVAL)

    async def release(self) -> None:
        """Release the leases, so that a standby can take over at once, and stop sending."""
        self._valid_until = 0.0
        try:
            await self._leases.release()
        except StorageError as error:  # the leases expire by themselves
            _log.warning("irc.lease_not_released", error=str(error))

    def guard(self, log: ChatLog) -> None:
        """Make every write to `log` check the fencing numbers of our leases."""
        log.guard(self._leases.check)

    async def advance_watermark(self, log: ChatLog) -> None:
        """Advance the watermark up to which our events are in the log, until cancelled.

        `keep` publishes it in the leases, for a later holder.
        """
        while True:
            # Taken before the flush: events that arrive during the flush need not be covered by it.
            began = self._time()
            try:
                await log.flush()
                self._watermark = began
            except Unavailable:  # the log reports it
                pass
            await asyncio.sleep(RENEW_INTERVAL)

    def on_event(self, event: IrcEvent) -> None:
        """Handle an event: buffer it during standby, pass it on after the takeover."""
        self._on_event(event)

    def pass_on(self, on_event: Callable[[IrcEvent], None]) -> None:
        """Pass events to `on_event` from now on, instead of buffering them."""
        self._on_event = on_event

    def drain(self) -> list[BufferedEvent]:
        """Remove and return the buffered events of the last `BUFFER_SECONDS`, oldest first."""
        kept, self._buffer = self._buffer, deque(maxlen=MAX_BUFFERED)
        since = self._time() - BUFFER_SECONDS
        return [
            BufferedEvent(each.event, each.time < self._watermark_of(each.event.network) - MAX_LAG)
            for each in kept
            if each.time >= since
        ]

    def _buffer_event(self, event: IrcEvent) -> None:
        now = self._time()
        while self._buffer and self._buffer[0].time < now - BUFFER_SECONDS:
            self._buffer.popleft()
        if event.type == "INVITE" or event.batch_type:
            return  # an invitation of the standby nick, or history, which the holder got live
        if event.channel is None and not self.is_active():
            return  # a private message to the standby nick
        # What the holder said counts as our own: it must be logged so, and shows what is answered.
        lease = self._holders.get(self._names[event.network])
        if lease and _is_by(event, lease, self._networks[event.network]):
            event = replace(event, own=True)
        self._buffer.append(_Buffered(event, now))

    def _watermark_of(self, network: str) -> float:
        """Return the last holder's watermark for a network, by the event loop's clock."""
        lease = self._holders.get(self._names[network])
        return self._leases_read_at - lease.settled.total_seconds() if lease else 0.0


def lease_names(networks: Iterable[str]) -> dict[str, str]:
    """Return the lease names by network."""
    return {name: f"{LEASE_PREFIX}{name}" for name in networks}


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


def _as_standby(settings: NetworkSettings) -> NetworkSettings:
    """Return the settings for standby: the nick with `_`, and no NickServ password."""
    # With the password, nick recovery would disconnect (GHOST) whoever has the standby nick, such
    # as another standby.
    return settings.model_copy(update={"nick": f"{settings.nick}_", "nickserv_password": None})


def _known_as(network: Network) -> str:
    """Return our `nick!user@host`, or "" while we do not know it."""
    source = network.session.source
    is_known = network.connected.is_set() and source.user and source.host
    return str(source) if is_known else ""


def _is_by(event: IrcEvent, lease: Lease, network: Network) -> bool:
    """Return whether the holder of the lease is the source of an event."""
    # The whole source is compared: once the holder is gone, anybody can take its nick.
    source = f"{event.nick}!{event.user}@{event.host}"
    return lease.known_as != "" and network.fold(source) == network.fold(lease.known_as)
