"""The admission queue of one engine: a `Scheduler` driven by asyncio."""

from __future__ import annotations

import asyncio
import time

from agent_server.admission.scheduler import QueuedRequest, Scheduler
from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import QueueTimeout, RateLimited
from terrarium.cancellation import CancelScope, ScopeCancelled


class AdmissionQueue:
    """Admits requests in the scheduler's order.

    `interactive` and `background` are the longest waits of the two priorities, in seconds.
    """

    def __init__(self, scheduler: Scheduler, *, interactive: float, background: float) -> None:
        self.scheduler = scheduler
        self._patience = {False: interactive, True: background}
        # One future per waiting request: True when it is started, False when it is evicted.
        self._waiting: dict[QueuedRequest, asyncio.Future[bool]] = {}
        # The requests that run and are waiting for their first chunk, if they can be preempted.
        self._preemptible: dict[QueuedRequest, CancelScope] = {}
        self._later: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        scheduler = self.scheduler
        interactive, background = (scheduler.waiting_count(background=b) for b in (False, True))
        return (
            f"<AdmissionQueue {scheduler.running}/{scheduler.slots} running,"
            f" {interactive} interactive and {background} background waiting>"
        )

    @property
    def is_busy(self) -> bool:
        """True while a request runs or waits."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    async def acquire(self, request: QueuedRequest) -> None:
        """Wait until `request` may run; the caller must then call `release`.

        Raises RateLimited if the queue is full or another request takes this one's place in it,
        QueueTimeout after the longest wait. A task that is cancelled here leaves the queue and
        holds no slot.
        """
        request.arrived = time.monotonic()
        # There is no await before `_wait`, so every request that the scheduler has waiting is in
        # `_waiting`.
        loser = self.scheduler.arrive(request)
        if loser is request:
            raise self._full()
        if loser is not None and not (future := self._waiting.pop(loser)).done():
            future.set_result(False)
        self._dispatch()
        # A request that is admitted but not yet in `_preemptible` checks in `await_first_token`.
        if not request.background:
            for other in self.scheduler.preemptible():
                if other in self._preemptible:
                    self._preemptible[other].stop()
        if request.started is None:
            await self._wait(request)

    async def await_first_token(self, request: QueuedRequest, chunks: Chunks) -> Chunk | None:
        """Return the first chunk of the answer to a running request, None if it is empty. Raises
        ScopeCancelled if the request is preempted; the caller must then call `reacquire`."""
        if request in self.scheduler.preemptible():
            raise ScopeCancelled  # an interactive request has come since it was admitted
        self._preemptible[request] = scope = CancelScope()
        try:
            return await scope.result(anext(chunks, None))
        finally:
            del self._preemptible[request]

    async def reacquire(self, request: QueuedRequest) -> None:
        """Give up the slot of a preempted request and wait for another. Raises like `acquire`."""
        self.scheduler.requeue(request)
        self._dispatch()
        if request.started is None:
            await self._wait(request)

    def on_first_token(self, request: QueuedRequest) -> None:
        """Record the first chunk of an answer, and start what was held back until then."""
        self.scheduler.on_first_token(request, time.monotonic())
        self._dispatch()

    def release(self, request: QueuedRequest, cost: float) -> None:
        """Release the slot; `cost` is the number of tokens computed, 0 if none.

        Does nothing for a request without a slot: one that was preempted and has not got another.
        """
        if request.started is None:
            return
        self.scheduler.end(request, time.monotonic(), cost)
        self._dispatch()

    async def _wait(self, request: QueuedRequest) -> None:
        self._waiting[request] = future = asyncio.get_running_loop().create_future()
        patience = self._patience[request.background]
        # Counted from the arrival, so that preemption does not start the wait afresh.
        left = request.arrived + patience - time.monotonic()
        try:
            async with asyncio.timeout(left):
                came = await future
        except TimeoutError:
            self._give_up(request)
            seconds = self.scheduler.drain_seconds(time.monotonic())
            text = f"no slot was free within {patience:g} s"
            raise QueueTimeout(text, retry_after=seconds) from None
        except BaseException:
            self._give_up(request)
            raise
        if not came:
            raise self._full()

    def _give_up(self, request: QueuedRequest) -> None:
        # The slot may have been granted just before the timeout or the cancellation took effect.
        if request.started is not None:
            self.release(request, 0)
        elif self._waiting.pop(request, None):
            self.scheduler.cancel(request)

    def _dispatch(self) -> None:
        now = time.monotonic()
        while request := self.scheduler.start(now):
            future = self._waiting.pop(request, None)
            # A request that `acquire` starts at once has no future. A cancelled future belongs to a
            # task that has yet to wake up: `_give_up` then releases the slot.
            if future is not None and not future.done():
                future.set_result(True)
        if self._later:
            self._later.cancel()
            self._later = None
        # The end of a running request's exclusive time.
        if (seconds := self.scheduler.exclusive_until - now) > 0:
            self._later = asyncio.get_running_loop().call_later(seconds, self._dispatch)

    def resize(self, slots: int, reserved: int) -> None:
        """Set the number of slots; requests that already run beyond it continue."""
        self.scheduler.resize(slots, reserved)
        self._dispatch()

    def _full(self) -> RateLimited:
        seconds = self.scheduler.drain_seconds(time.monotonic())
        text = "too many requests wait already"
        return RateLimited(text, code="queue_full", retry_after=seconds)
