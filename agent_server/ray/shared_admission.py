"""The queues and accounts that all servers share: one queue for each model, in one process.

A server leases its places in a queue: it renews those that it waits for or holds once in `RENEWAL`
seconds, and a lease that was not renewed for `EXPIRY` seconds is over. So the places of a server
that died are free again, and a message that got lost costs no place for ever. An engine offers its
places in the same way. Nothing here knows Ray.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from agent_server.admission.admission import AdmissionPolicy, reserved_places
from agent_server.admission.queue import AdmissionQueue
from agent_server.admission.scheduler import QueuedRequest
from agent_server.errors import ApiError
from agent_server.metering.accounts import ExpectedUse, Reservation
from agent_server.ray.shared_accounts import SharedAccounts
from agent_server.settings.admission import AdmissionSettings
from agent_server.settings.models import settings_of_models
from terrarium.config import Config

RENEWAL = 1.0
EXPIRY = 6.0
"""Seconds; in between a server may have five renewals fail."""


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A request of a server for a place, under an id of its own.

    The other fields are those of `QueuedRequest`.
    """

    id: str
    key: str
    cost: float
    weight: float
    background: bool
    parallel: int | None

    def queued(self) -> QueuedRequest:
        """Return the request as the scheduler takes it."""
        return QueuedRequest(self.key, self.cost, self.weight, self.background, self.parallel)


@dataclass(frozen=True, slots=True)
class QueueState:
    """The numbers of one queue, as a server shows them."""

    places: int
    running: int = 0
    interactive: int = 0
    background: int = 0

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""
        return self.background if background else self.interactive


@dataclass(slots=True)
class _Lease:
    """A place that is waited for or held, and until when that counts."""

    request: QueuedRequest
    expires: float


@dataclass(slots=True)
class _ModelQueue:
    """The queue of one model, its leases by id, and the expiry of each engine's offer."""

    queue: AdmissionQueue
    places: int
    leases: dict[str, _Lease] = field(default_factory=dict)
    engines: dict[str, float] = field(default_factory=dict)

    async def acquire(self, name: str, lease: _Lease) -> None:
        """Wait for a place. Raises ApiError.

        A server asks again under the same id when it does not know what came of its request: only
        the last one counts.
        """
        self.release(name, 0)
        self.leases[name] = lease
        try:
            await self.queue.acquire(lease.request)
        except BaseException:
            if self.leases.get(name) is lease:
                del self.leases[name]
            raise
        if self.leases.get(name) is not lease:
            self.queue.release(lease.request, 0)

    def release(self, name: str, cost: float) -> None:
        """Give a place back, if it was not over before."""
        if lease := self.leases.pop(name, None):
            self.queue.release(lease.request, cost)

    def state(self) -> QueueState:
        scheduler = self.queue.scheduler
        interactive, background = (scheduler.waiting_count(background=b) for b in (False, True))
        return QueueState(scheduler.places, scheduler.running, interactive, background)

    def fit(self) -> None:
        """Give the queue as many places as the engines that are there have, at least one's."""
        places = self.places * max(1, len(self.engines))
        if places != self.queue.scheduler.places:
            self.queue.resize(places, reserved_places(places))

    def expire(self, now: float) -> None:
        """End the leases and offers that were not renewed."""
        for engine in [each for each, expires in self.engines.items() if expires < now]:
            del self.engines[engine]
            self.fit()
        for name in [name for name, lease in self.leases.items() if lease.expires < now]:
            self.release(name, 0)  # one that waits still is given back as soon as it is granted


class SharedAdmission:
    """Hands out the places of every model to all servers, by one fair queue for each.

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
            name: _ModelQueue(rules.queue(model.places, most, yields=False), model.places)
            for name, model in settings_of_models(config)[1].items()
        }

    async def acquire(self, model: str, place: PlaceRequest) -> ApiError | None:
        """Wait for a place and lease it; returns the error of the API if there was none.

        An error is returned, as it would reach the other process in another form if raised.
        """
        try:
            await self._models[model].acquire(
                place.id, _Lease(place.queued(), self._clock() + EXPIRY)
            )
        except ApiError as error:
            return error
        return None

    async def release(self, model: str, lease: str, cost: float) -> None:
        """Give a place back; `cost` is as at `AdmissionQueue.release`."""
        self._models[model].release(lease, cost)

    async def reserve(self, use: ExpectedUse) -> Reservation | ApiError | None:
        """Reserve what a request expects to use, as `Accounts.reserve`; returns the error."""
        return await self._accounts.reserve(use)

    async def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation, as `Accounts.settle`."""
        await self._accounts.settle(reservation, tokens, cost)

    async def renew(self, leases: Mapping[str, Collection[str]]) -> Mapping[str, QueueState]:
        """Renew a server's leases, by model; returns the state of every queue."""
        now = self._clock()
        for model, names in leases.items():
            held = self._models[model].leases
            for name in names:
                if name in held:
                    held[name].expires = now + EXPIRY
        for of_model in self._models.values():
            of_model.expire(now)
        return {name: of_model.state() for name, of_model in self._models.items()}

    async def offer(self, model: str, engine: str) -> int:
        """Count the places of one more engine, for a while; returns how many requests of the model
        run or wait."""
        of_model, now = self._models[model], self._clock()
        of_model.engines[engine] = now + EXPIRY
        of_model.expire(now)
        of_model.fit()
        state = of_model.state()
        return state.running + state.interactive + state.background

    async def withdraw(self, model: str, engine: str) -> None:
        """Count the places of an engine no more: it stops."""
        of_model = self._models[model]
        if of_model.engines.pop(engine, None) is not None:
            of_model.fit()
