"""Standing by: one of several tendrils is active on our networks, the others hear along.

Who is active holds the leases of all its networks (`storage.queues.leases`) and renews them. A
standby is in the same channels under another nick, says nothing and logs nothing, but keeps what it
heard of the last minute. When the leases have run out it takes them, and the nick; what then is to
be logged and answered is the affair of `harnesses.irc.failover.takeover`.

A holder that could not renew in good time falls silent by itself, before anybody else can speak; it
goes on when it can renew, or ends by LeaseLost when it has been replaced.
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

PREFIX = "irc/"
"""What the names of the leases of networks begin with."""

LEASE = timedelta(seconds=5)
"""How long a holder that says nothing more counts as active."""

RENEW_EVERY, LOOK_EVERY = 1.5, 0.5
"""Seconds between renewals, and between looks at whether the holder is still there."""

REMEMBERED = 60.0
"""Seconds for which a standby keeps what it hears: who asked longer ago has stopped waiting."""

MOST = 10_000
"""Events that are kept at most."""

LATE = 2.0
"""Seconds by which the holder may have heard an event after us, and so not have had it logged when
it says that it has logged everything."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeardEvent:
    """An event that was heard while standing by; of one that `is_settled` the holder has had the
    time to log it, so that it is in the log or is not to be there."""

    event: IrcEvent
    is_settled: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """An event and the time at which it was heard, by the event loop's clock."""

    event: IrcEvent
    time: float


class Standby:
    """Our share in the leases of `networks`, which are kept in `database`."""

    def __init__(self, database: Database, networks: Mapping[str, Network]) -> None:
        holder = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._database, self._networks = database, networks
        self._leases = Leases(database, holder)
        self._names = lease_names(networks)
        self._wanted = {name: network.settings for name, network in networks.items()}
        self._time = asyncio.get_running_loop().time
        self._valid_until = 0.0
        self._settled: float | None = None
        self._holders: dict[str, Lease] = {}
        self._looked = 0.0
        self._kept: deque[_Kept] = deque(maxlen=MOST)
        self._on_event: Callable[[IrcEvent], None] = self._keep_event
        self.is_connected = False
        for network in networks.values():
            network.restrict(self.is_active)

    def is_active(self) -> bool:
        """Return whether we may speak: nobody else can have the leases at this moment."""
        return self._time() < self._valid_until

    async def try_acquire(self) -> bool:
        """Take the leases if nobody holds one; whether we have them. Raises Unavailable, and
        TendrilError when others are on other networks."""
        found = await self._leases.find(PREFIX)
        require_same_networks(found, self._names)
        self._holders, self._looked = {lease.name: lease for lease in found}, self._time()
        if any(lease.is_held for lease in found):
            return False
        began = self._time()
        if await self._leases.acquire(self._names.values(), LEASE):
            self._valid_until = began + LEASE.total_seconds()
            return True
        return False

    async def prepare(self) -> None:
        """Be on the networks under another nick, and in the channels that admins have chosen.
        Raises StorageError."""
        _, overrides = await load_channel_settings(self._database)
        for name, network in self._networks.items():
            network.configure(_as_standby(self._wanted[name]))
            for channel, key in overrides.channels(name).items():
                network.part(channel) if key is None else network.join(channel, key)

    def connect(self) -> list[Coroutine[Any, Any, None]]:
        """Return what has to run for us to hear what happens on the networks."""
        self.is_connected = True
        return [network.run(self.on_event) for network in self._networks.values()]

    async def until_acquired(self) -> None:
        """Wait until the leases are ours, and take the nicks."""
        while not await self._try_again():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY)  # a process that dies tells nobody
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
        """Renew the leases until cancelled. Raises LeaseLost."""
        while True:
            began = self._time()
            settled = None if self._settled is None else timedelta(seconds=began - self._settled)
            renewals = {
                self._names[name]: Renewal(_known_as(network), settled)
                for name, network in self._networks.items()
            }
            try:
                await self._leases.renew(renewals, LEASE)
            except Unavailable as error:
                _log.warning("irc.lease_not_renewed", error=str(error))
            else:
                was_active, self._valid_until = self.is_active(), began + LEASE.total_seconds()
                if not was_active:
                    for network in self._networks.values():
                        network.recheck()
            await asyncio.sleep(RENEW_EVERY)

    async def release(self) -> None:
        """Let somebody else take over at once."""
        self._valid_until = 0.0
        try:
            await self._leases.release()
        except StorageError as error:  # they run out
            _log.warning("irc.lease_not_released", error=str(error))

    def guard(self, log: ChatLog) -> None:
        """Have nothing written into `log` once another process has taken over."""
        log.guard(self._leases.check)

    async def note_settled(self, log: ChatLog) -> None:
        """Note, for who may come after us, until when everything we heard is in the log, until
        cancelled."""
        while True:
            began = self._time()
            try:
                await log.flush()
                self._settled = began
            except Unavailable:  # the log itself says so
                pass
            await asyncio.sleep(RENEW_EVERY)

    def on_event(self, event: IrcEvent) -> None:
        """Take an event: keep it while standing by, later pass it on."""
        self._on_event(event)

    def pass_on(self, on_event: Callable[[IrcEvent], None]) -> None:
        """Give events to `on_event` from now on."""
        self._on_event = on_event

    def take_heard(self) -> list[HeardEvent]:
        """Return what was heard in the last minute and not taken yet."""
        kept, self._kept = self._kept, deque(maxlen=MOST)
        since = self._time() - REMEMBERED
        return [
            HeardEvent(each.event, each.time < self._settled_until(each.event.network) - LATE)
            for each in kept
            if each.time >= since
        ]

    def _keep_event(self, event: IrcEvent) -> None:
        now = self._time()
        while self._kept and self._kept[0].time < now - REMEMBERED:
            self._kept.popleft()
        if event.type == "INVITE" or event.batch_type:
            return  # the holder was asked; it was there
        if event.channel is None and not self.is_active():
            return  # to us under a nick that nobody was to write to
        lease = self._holders.get(self._names[event.network])
        if lease and _is_by(event, lease, self._networks[event.network]):
            event = replace(event, own=True)
        self._kept.append(_Kept(event, now))

    def _settled_until(self, network: str) -> float:
        """Return the time, by the event loop's clock, until which the last holder had logged."""
        lease = self._holders.get(self._names[network])
        return self._looked - lease.settled.total_seconds() if lease else 0.0


def lease_names(networks: Iterable[str]) -> dict[str, str]:
    """Return the names of the leases of networks."""
    return {name: f"{PREFIX}{name}" for name in networks}


def require_same_networks(found: Sequence[Lease], networks: Collection[str]) -> None:
    """Make sure that who is active is on these networks and no others: it does all that is in the
    log's queues, also for networks that it is not on. Raises TendrilError."""
    by_holder: dict[str, set[str]] = {}
    for lease in found:  # of a holder all are looked at: they may run out one after another
        by_holder.setdefault(lease.holder, set()).add(lease.name.removeprefix(PREFIX))
    for lease in found:
        theirs = by_holder[lease.holder]
        if lease.is_held and theirs != set(networks):
            raise TendrilError(
                f"another IRC tendril with the same log is on {' '.join(sorted(theirs))}, not on"
                f" {' '.join(sorted(networks))}: name the same networks in [irc] for both, or give"
                " each a log of its own ([storage] db_path or url)"
            )


def _as_standby(settings: NetworkSettings) -> NetworkSettings:
    """Return the settings under which we stand by. NickServ is not told our password, or it would
    send the holder away from the nick."""
    return settings.model_copy(update={"nick": f"{settings.nick}_", "nickserv_password": None})


def _known_as(network: Network) -> str:
    """Return the whole `nick!user@host` of ours, "" while we do not know it."""
    source = network.source
    is_known = network.connected.is_set() and source.user and source.host
    return str(source) if is_known else ""


def _is_by(event: IrcEvent, lease: Lease, network: Network) -> bool:
    """Return whether the holder of the lease did it. A nick alone is nobody's."""
    source = f"{event.nick}!{event.user}@{event.host}"
    return lease.known_as != "" and network.fold(source) == network.fold(lease.known_as)
