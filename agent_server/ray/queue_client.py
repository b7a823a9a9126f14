"""Client of the queues and accounts that several servers share."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from typing import Any

import structlog
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from agent_server.admission.scheduler import QueuedRequest
from agent_server.engine_protocol import Chunk, Chunks
from agent_server.errors import ApiError, EngineUnavailable
from agent_server.metering.accounts import ExpectedUse, Reservation
from agent_server.ray.shared_admission import RENEWAL_INTERVAL, QueueState, SlotRequest
from storage.db.database import Database

log = structlog.get_logger()

LOST_PROCESS_ERRORS = (RayError, RayServeException)
"""Exceptions by which Ray reports that the other process has died or cannot be reached."""

QUEUE_PATIENCE = 60.0
"""Seconds to wait for the queue's process to be restarted after it has died."""

CALL_TIMEOUT = 10.0
"""Seconds for a call that needs no slot. A successor of the process usually answers within five."""

RETRY_PAUSE = 0.2
"""Seconds between two attempts to reach it."""


class QueueLink:
    """The connection of one server to the process of `SharedState`."""

    def __init__(self, admission: Any) -> None:
        self._admission = admission
        self._queues: dict[str, SharedQueue] = {}
        self._sending: set[asyncio.Future[Any]] = set()

    def queue(self, model: str) -> SharedQueue:
        """Return the client of the queue of `model`."""
        return self._queues.setdefault(model, SharedQueue(self, model))

    async def keep_renewing(self) -> None:
        """Renew the leases of this server and update the queues' states, until cancelled."""
        while True:
            leases = {name: list(queue.leases) for name, queue in self._queues.items()}
            try:
                states = await self._admission.renew.remote(leases)
            except LOST_PROCESS_ERRORS as error:
                log.warning("admission.lost", error=type(error).__name__)
            else:
                for name, queue in self._queues.items():
                    queue.state.now = states[name]
            await asyncio.sleep(RENEWAL_INTERVAL)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the process, again if it gives no answer; return its answer.

        Raises ApiError; EngineUnavailable if the process cannot be reached for `QUEUE_PATIENCE`
        seconds.
        """
        deadline = time.monotonic() + QUEUE_PATIENCE
        while True:
            response = getattr(self._admission, method).remote(*arguments)
            try:
                answer = await response
            except asyncio.CancelledError:
                response.cancel()  # else the call would go on waiting for a slot over there
                raise
            # The process may live, and only its answer be lost, so these methods can be repeated.
            # Of `acquire` the last call under an id counts, of `reserve` the first one.
            except LOST_PROCESS_ERRORS as error:
                if time.monotonic() > deadline:
                    raise EngineUnavailable("the queue cannot be reached") from error
                await asyncio.sleep(RETRY_PAUSE)
            else:
                if isinstance(answer, ApiError):
                    raise answer
                return answer

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method that answers at once, as `ask` does; return its answer.

        Raises EngineUnavailable after `CALL_TIMEOUT` seconds.
        """
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await self.ask(method, *arguments)
        except TimeoutError as error:
            raise EngineUnavailable(
                "the process that the servers share cannot be reached; ask again in a moment"
            ) from error

    def tell(self, method: str, *arguments: Any) -> None:
        """Send a message without waiting; it is lost if the process dies."""
        sending = asyncio.ensure_future(self._send(method, *arguments))
        # asyncio itself holds only weak references to tasks.
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, method: str, *arguments: Any) -> None:
        try:
            await getattr(self._admission, method).remote(*arguments)
        except LOST_PROCESS_ERRORS as error:
            log.warning("admission.lost", error=type(error).__name__)


class AccountsClient:
    """Client of the accounts that all servers share, in another process; fits `Accounts`."""

    def __init__(self, link: QueueLink, *, has_budgets: bool) -> None:
        self._link = link
        self._has_budgets = has_budgets

    async def reserve(self, use: ExpectedUse) -> Reservation | None:
        """Reserve the expected use of a request. Raises ApiError.

        A request without quotas and budgets, as most are, skips the round trip.
        """
        if not use.key.has_quotas and not (self._has_budgets and use.spender):
            return None
        reservation: Reservation | None = await self._link.ask("reserve", token_hex(8), use)
        return reservation

    def settle(self, reservation: Reservation, tokens: int, cost: float) -> None:
        """Correct a reservation. If the message is lost, the estimate stays."""
        self._link.tell("settle", reservation, tokens, cost)

    async def restore(self, _database: Database) -> None:
        """Do nothing: the other process reads the table itself."""


class LastState:
    """The state of a queue as of the last renewal, at most a few seconds old."""

    def __init__(self) -> None:
        self.now = QueueState(0)

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self.now.slots

    @property
    def running(self) -> int:
        """The number of running requests."""
        return self.now.running

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""
        return self.now.waiting_count(background=background)


class SharedQueue:
    """Client of the queue of one model, in another process; fits `RequestQueue`."""

    preemptive = False

    def __init__(self, link: QueueLink, model: str) -> None:
        self._link = link
        self._model = model
        self._ids: dict[QueuedRequest, str] = {}
        self.state = LastState()

    @property
    def leases(self) -> list[str]:
        """The ids of the slots that this server holds or waits for."""
        return list(self._ids.values())

    @property
    def is_busy(self) -> bool:
        """True while a request of this server runs or waits."""
        return bool(self._ids)

    async def acquire(self, request: QueuedRequest) -> None:
        """Wait until `request` may run; the caller must `release` it then. Raises ApiError."""
        self._ids[request] = lease = token_hex(8)
        slot_request = SlotRequest(
            lease,
            request.key,
            request.cost,
            request.weight,
            request.background,
            request.parallel,
        )
        try:
            await self._link.ask("acquire", self._model, slot_request)
        except BaseException:
            self.release(request, 0)  # the slot may have been granted a moment ago
            raise

    async def await_first_token(self, _request: QueuedRequest, chunks: Chunks) -> Chunk | None:
        """Return the first chunk, None if there is none; nothing is preempted here."""
        return await anext(chunks, None)

    async def reacquire(self, request: QueuedRequest) -> None:
        """Give the slot back and wait for another. Raises ApiError."""
        self.release(request, 0)
        await self.acquire(request)

    def on_first_token(self, _request: QueuedRequest) -> None:
        """Do nothing: no request runs exclusively here."""

    def release(self, request: QueuedRequest, cost: float) -> None:
        """Give the slot back; `cost` is the number of computed tokens, 0 if there were none."""
        if lease := self._ids.pop(request, None):
            # A lost message does no harm: the lease expires.
            self._link.tell("release", self._model, lease, cost)
