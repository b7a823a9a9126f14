"""Queues and accounts that all servers share: one queue for each model, all in one process.

Slots are leased. A server renews the leases of its running and waiting requests every
`RENEWAL_INTERVAL` seconds, and a lease that was not renewed for `LEASE_TIMEOUT` seconds ends. So
the slots of a dead server are freed, and a lost message cannot cost a slot for ever. An engine
offers its slots under the same terms. This module does not depend on Ray.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from agent_server.admission.admission import AdmissionPolicy, reserved_slots
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import QueuedRequest
from agent_server.errors import ApiError
from agent_server.metering.accounts import ExpectedUse, Reservation
from agent_server.ray.shared_accounts import SharedAccounts
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import settings_of_models
from terrarium.config import Config

RENEWAL_INTERVAL = 1.0
LEASE_TIMEOUT = 6.0
"""Seconds between renewals, and until a lease ends: five renewals in a row may fail."""


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A server's request for a slot, under a unique id.

    The other fields are those of `QueuedRequest`.
    """

    id: str
    key: str
    cost: float
    weight: float
    background: bool
    parallel: int | None

    def queued(self) -> QueuedRequest:
        """Return the request in the scheduler's form."""
        return QueuedRequest(self.key, self.cost, self.weight, self.background, self.parallel)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The counts of one queue, as servers report them."""

    slots: int
    running: int = 0
    interactive: int = 0
    background: int = 0

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""
        return self.background if background else self.interactive


@dataclass(slots=True)
class _Lease:
    """The lease of a slot that a request holds or waits for; `expires` is a time of the clock."""

    request: QueuedRequest
    expires: float


@dataclass(slots=True)
class _ModelQueue:
    """The queue of one model, its leases by id, and the expiry time of each engine's offer.

    `slots` is the number of slots of one engine.
    """

    queue: AdmissionQueue
    slots: int
    leases: dict[str, _Lease] = field(default_factory=dict)
    engines: dict[str, float] = field(default_factory=dict)

    async def acquire(self, name: str, lease: _Lease) -> None:
        """Wait for a slot. Raises ApiError.

        A server that does not know the outcome of its request repeats it under the same id; only
        the last one counts.
        """
        self.release(name, 0)
        self.leases[name] = lease
        try:
            await self.queue.acquire(lease.request)
        except BaseException:
            # While this one waited, a repeated request may have put its own lease here.
            if self.leases.get(name) is lease:
                del self.leases[name]
            raise
        # The lease has ended while it waited (repeated, released or expired): nobody would give
        # this slot back.
        if self.leases.get(name) is not lease:
            self.queue.release(lease.request, 0)

    def release(self, name: str, cost: float) -> None:
        """End a lease and give its slot back; do nothing if it has ended before."""
        if lease := self.leases.pop(name, None):
            self.queue.release(lease.request, cost)

    def state(self) -> QueueState:
        scheduler = self.queue.scheduler
        interactive, background = (scheduler.waiting_count(background=b) for b in (False, True))
        return QueueState(scheduler.slots, scheduler.running, interactive, background)

    def fit(self) -> None:
        """Resize the queue to the slots of all engines that offer some, or of one at least."""
        # At least one: the first engine is still being started, and requests already wait for it.
        slots = self.slots * max(1, len(self.engines))
        if slots != self.queue.scheduler.slots:
            self.queue.resize(slots, reserved_slots(slots))

    def expire(self, now: float) -> None:
        """End the leases and offers that were not renewed in time."""
        for engine in [each for each, expires in self.engines.items() if expires < now]:
            del self.engines[engine]
            self.fit()
        for name in [name for name, lease in self.leases.items() if lease.expires < now]:
            self.release(name, 0)  # if it still waits, `acquire` gives the slot back once granted


class SharedAdmission:
    """Grants the slots of every model to all servers, through one fair queue for each model.

    Nothing is preempted: the requests of several servers run on several engines.
    """

    def __init__(
        self,
        config: Config,
        policy: AdmissionPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        rules, most = policy or AdmissionPolicy(), config.section(AdmissionSettings).max_waiting
        self._clock = clock
        self._accounts = SharedAccounts(config)
        self._models = {
            name: _ModelQueue(
                rules.queue(model.slot_count, most, preemptive=False), model.slot_count
            )
            for name, model in settings_of_models(config)[1].items()
        }

    async def acquire(self, model: str, slot_request: SlotRequest) -> ApiError | None:
        """Wait for a slot and lease it; return the ApiError if there was none.

        It is returned because a raised exception would reach the other process in another form.
        """
        try:
            await self._models[model].acquire(
                slot_request.id, _Lease(slot_request.queued(), self._clock() + LEASE_TIMEOUT)
            )
        except ApiError as error:
            return error
        return None

    async def release(self, model: str, lease: str, cost: float) -> None:
        """End a lease; `cost` is as in `AdmissionQueue.release`."""
        self._models[model].release(lease, cost)

    async def reserve(self, call: str, use: ExpectedUse) -> Reservation | ApiError | None:
        """Reserve the expected use of a request, as `SharedAccounts.reserve`."""
        return await self._accounts.reserve(call, use)

    async def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation, as `Accounts.settle`."""
        await self._accounts.settle(reservation, tokens, cost)

    async def renew(self, leases: Mapping[str, Collection[str]]) -> Mapping[str, QueueState]:
        """Renew a server's leases, given by model; return the state of every queue."""
        now = self._clock()
        for model, names in leases.items():
            held = self._models[model].leases
            for name in names:
                if name in held:
                    held[name].expires = now + LEASE_TIMEOUT
        # Instead of a timer: as long as any server is alive, it also ends the leases of others.
        for of_model in self._models.values():
            of_model.expire(now)
        return {name: of_model.state() for name, of_model in self._models.items()}

    async def offer(self, model: str, engine: str) -> int:
        """Offer or renew an engine's slots, for `LEASE_TIMEOUT` seconds.

        Return the model's demand: how many of its requests run or wait.
        """
        of_model, now = self._models[model], self._clock()
        of_model.engines[engine] = now + LEASE_TIMEOUT
        of_model.expire(now)
        of_model.fit()
        state = of_model.state()
        return state.running + state.interactive + state.background

    async def withdraw(self, model: str, engine: str) -> None:
        """Withdraw the slots of an engine that stops."""
        of_model = self._models[model]
        if of_model.engines.pop(engine, None) is not None:
            of_model.fit()
