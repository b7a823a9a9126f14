"""The queue of one engine, in asyncio."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol

from agent_server.admission.scheduler import QueuedRequest, Scheduler
from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import QueueTimeout, RateLimited
from agent_server.metering.metrics import AdmissionState
from terrarium.cancellation import CancelScope, ScopeCancelled


class RequestQueue(Protocol):
    """The queue in front of one engine, in this process or shared by several servers.

    `state` has its numbers. Where `yields`, a background request without a first token is
    preempted by an interactive one. The methods are described at `AdmissionQueue`.
    """

    @property
    def state(self) -> AdmissionState: ...

    @property
    def yields(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    async def acquire(self, request: QueuedRequest) -> None: ...

    async def await_first_token(self, request: QueuedRequest, chunks: Chunks) -> Chunk | None: ...

    async def reacquire(self, request: QueuedRequest) -> None: ...

    def on_first_token(self, request: QueuedRequest) -> None: ...

    def release(self, request: QueuedRequest, cost: float) -> None: ...


class AdmissionQueue:
    """Admits requests in the scheduler's order. The longest waits are in seconds, by priority."""

    def __init__(self, scheduler: Scheduler, *, interactive: float, background: float) -> None:
        self.scheduler = scheduler
        self._patience = {False: interactive, True: background}
        self._waiting: dict[QueuedRequest, asyncio.Future[bool]] = {}
        self._stoppable: dict[QueuedRequest, CancelScope] = {}
        self._later: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        scheduler = self.scheduler
        interactive, background = (scheduler.waiting_count(background=b) for b in (False, True))
        return (
            f"<AdmissionQueue {scheduler.running}/{scheduler.places} running,"
            f" {interactive} interactive and {background} background waiting>"
        )

    @property
    def state(self) -> AdmissionState:
        """The numbers of the queue."""
        return self.scheduler

    @property
    def yields(self) -> bool:
        """True where the requests share one processor."""
        return self.scheduler.yields

    @property
    def is_busy(self) -> bool:
        """True while a request runs or waits."""
        waiting = (self.scheduler.waiting_count(background=each) for each in (False, True))
        return bool(self.scheduler.running or any(waiting))

    async def acquire(self, request: QueuedRequest) -> None:
        """Wait until `request` may run; then `release` must be called.

        Raises RateLimited when too many wait, QueueTimeout when it has waited too long. A task
        that is cancelled here waits no longer and holds no place.
        """
        request.arrived = time.monotonic()
        loser = self.scheduler.arrive(request)
        if loser is request:
            raise self._full()
        if loser is not None and not (future := self._waiting.pop(loser)).done():
            future.set_result(False)
        self._dispatch()
        if not request.background:
            for other in self.scheduler.preemptible():
                if other in self._stoppable:
                    self._stoppable[other].stop()
        if request.started is None:
            await self._wait(request)

    async def await_first_token(self, request: QueuedRequest, chunks: Chunks) -> Chunk | None:
        """Return the first chunk of the answer to a running request, None when it is empty.

        Raises ScopeCancelled when it has to make room first; then `reacquire` must be called.
        """
        if request in self.scheduler.preemptible():
            raise ScopeCancelled  # an interactive request has come since it was admitted
        self._stoppable[request] = stoppable = CancelScope()
        try:
            return await stoppable.result(anext(chunks, None))
        finally:
            del self._stoppable[request]

    async def reacquire(self, request: QueuedRequest) -> None:
        """Give the place back, and wait until `request` may run again. Raises as `acquire` does."""
        self.scheduler.requeue(request)
        self._dispatch()
        if request.started is None:
            await self._wait(request)

    def on_first_token(self, request: QueuedRequest) -> None:
        """Record that the first chunk of an answer has come, and start what had to wait for it."""
        self.scheduler.on_first_token(request, time.monotonic())
        self._dispatch()

    def release(self, request: QueuedRequest, cost: float) -> None:
        """Give the place back; `cost` is how many tokens were computed, 0 when none was.

        A request that has no place any more, having made room for another, has nothing to give.
        """
        if request.started is None:
            return
        self.scheduler.end(request, time.monotonic(), cost)
        self._dispatch()

    async def _wait(self, request: QueuedRequest) -> None:
        self._waiting[request] = future = asyncio.get_running_loop().create_future()
        patience = self._patience[request.background]
        left = request.arrived + patience - time.monotonic()
        try:
            async with asyncio.timeout(left):
                came = await future
        except TimeoutError:
            self._give_up(request)
            raise QueueTimeout(
                f"no place was free within {patience:g} s; try again in {self._retry_after()} s",
                headers={"retry-after": str(self._retry_after())},
            ) from None
        except BaseException:
            self._give_up(request)
            raise
        if not came:
            raise self._full()

    def _give_up(self, request: QueuedRequest) -> None:
        if request.started is not None:
            self.release(request, 0)
        elif self._waiting.pop(request, None):
            self.scheduler.cancel(request)

    def _dispatch(self) -> None:
        now = time.monotonic()
        while request := self.scheduler.start(now):
            future = self._waiting.pop(request, None)
            # One that was cancelled a moment ago gives its place back when it wakes.
            if future is not None and not future.done():
                future.set_result(True)
        self._dispatch_later(self.scheduler.exclusive_until - now)

    def _dispatch_later(self, seconds: float) -> None:
        """Dispatch again when the exclusive time of a running request is over."""
        if self._later:
            self._later.cancel()
            self._later = None
        if seconds > 0:
            self._later = asyncio.get_running_loop().call_later(seconds, self._dispatch)

    def resize(self, places: int, reserved: int) -> None:
        """Set how many requests may run at once; those that run beyond it are let be."""
        self.scheduler.resize(places, reserved)
        self._dispatch()

    def _retry_after(self) -> int:
        return max(1, math.ceil(self.scheduler.drain_seconds(time.monotonic())))

    def _full(self) -> RateLimited:
        wait = self._retry_after()
        return RateLimited(
            f"too many requests wait already; try again in {wait} s",
            code="queue_full",
            headers={"retry-after": str(wait)},
        )
