"""The order in which requests run, decided without a clock or a socket.

The rules of `Scheduler`:

- At most `slots` requests run at once, and at most `request.parallel` of one key.
- Interactive requests precede background ones, which leave `reserved` slots free, so that a person
  does not wait for the end of a long answer that nobody is waiting for.
- While background requests wait, they are owed `share` of all tokens computed. As soon as the debt
  covers the cost of the next one, it runs first, if need be in a reserved slot, so that it never
  starves.
- Where requests share one processor (`preemptive`), no background request is started while an
  interactive one has no first token, and a running one without a first token is preempted, that is,
  queued again. Prefill is long work that cannot be shared out; decoding consists of short steps
  that can. A background request that was owed its slot is exempt from both.
- There an interactive request is also exclusive: nothing is started beside it until `DECODE_GRACE`
  seconds after its first token, and no longer than `MAX_EXCLUSIVE` in all. Two prompts read side by
  side would both be finished only when the second would be in sequence, and each token of an answer
  would wait for a batch of the other prompt. This way most answers are complete before the next
  prompt is read, and long ones are decoded while others are read.
- Within each priority the order is that of `FairQueue`.
- At most `most_waiting` requests wait. In a full queue the key with the most requests loses its
  newest one to a key with fewer, and a background request its place to an interactive one: a flood
  shuts nobody out. Source of this longest-queue drop: McKenney, "Stochastic Fairness Queueing",
  1990.

`FairQueue` gives each key its share of tokens by start-time fair queueing: each key has a virtual
start time, the key with the earliest one is next, and its time then advances by cost divided by
weight. A key that returns after a pause starts at the current virtual time: it has saved up
nothing. Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996. The cost of an answer
is known only at its end, when the estimate is corrected, as in Sheng et al., "Fairness in Serving
Large Language Models", OSDI 2024.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A request of a key, with its expected cost in tokens.

    `parallel` is the maximum number of running requests of this key (None: any number). `arrived`,
    `started` (None: not running) and `exclusive_until` are times in seconds of any one clock;
    before the last nothing is started beside the request.
    """

    key: str
    cost: float
    weight: float = 1.0
    background: bool = False
    parallel: int | None = None
    arrived: float = 0.0
    started: float | None = None
    exclusive_until: float = 0.0


@dataclass(slots=True, eq=False)
class _Flow:
    """The requests of one key; `start` is its virtual start time, `number` breaks ties."""

    start: float
    number: int
    running: int = 0
    waiting: deque[QueuedRequest] = field(default_factory=deque)


class FairQueue:
    """The waiting requests of one priority in fair order, and the virtual time."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        # A heap with lazy deletion: a key whose start changes gets another entry, and outdated
        # ones are dropped at the top. So a decision among 10,000 keys looks at few of them.
        self._order: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self._waiting = self._running = 0

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return self._waiting

    def waiting_count(self, key: str) -> int:
        """Return the number of waiting requests of `key`."""
        flow = self._flows.get(key)
        return len(flow.waiting) if flow else 0

    def add(self, request: QueuedRequest) -> None:
        """Append `request` to the queue of its key."""
        flow = self._flows.get(request.key)
        if flow is None:
            flow = self._flows[request.key] = _Flow(self._now, next(self._numbers))
        elif not flow.waiting:
            flow.start = max(flow.start, self._now)
        flow.waiting.append(request)
        self._waiting += 1
        if len(flow.waiting) == 1:
            self._put_in_order(request.key, flow)

    def head(self, may_run: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """Return the next request in fair order that `may_run`, without removing it."""
        found, passed_over = None, []
        while self._order and found is None:
            start, number, key = self._order[0]
            flow = self._flows.get(key)
            is_present = flow and flow.waiting and (flow.start, flow.number) == (start, number)
            if not flow or not is_present:
                heapq.heappop(self._order)
            elif may_run(flow.waiting[0]):
                found = flow.waiting[0]
            else:
                # Its key is at its limit of parallel requests: others pass, and it keeps its rank.
                passed_over.append(heapq.heappop(self._order))
        for entry in passed_over:
            heapq.heappush(self._order, entry)
        return found

    def start(self, request: QueuedRequest) -> None:
        """Remove `request`, the head of its key, as it now runs; charge its expected cost."""
        flow = self._flows[request.key]
        flow.waiting.popleft()
        flow.running += 1
        self._running += 1
        self._waiting -= 1
        # Virtual time is the start time of the request in service. It never goes back, so that a
        # key that was idle joins at the present.
        self._now = max(self._now, flow.start)
        self._move(request.key, flow, request.cost / request.weight)

    def requeue(self, request: QueuedRequest) -> None:
        """Return a running request to the head of its key's queue, and refund its cost."""
        flow = self._flows[request.key]
        flow.running -= 1
        self._running -= 1
        flow.waiting.appendleft(request)
        self._waiting += 1
        self._move(request.key, flow, -request.cost / request.weight)

    def end(self, request: QueuedRequest, cost: float) -> None:
        """Remove a running request, and correct its expected cost to the actual `cost`."""
        flow = self._flows[request.key]
        flow.running -= 1
        self._running -= 1
        # `start` has charged an estimate; this charges or refunds the difference.
        self._move(request.key, flow, (cost - request.cost) / request.weight)
        self._drop_idle(request.key, flow)

    def remove(self, request: QueuedRequest) -> None:
        """Remove a waiting request."""
        flow = self._flows[request.key]
        flow.waiting.remove(request)
        self._waiting -= 1
        self._drop_idle(request.key, flow)

    def longest_queue_tail(self) -> QueuedRequest | None:
        """Return the newest request of the key with the longest queue; None if none waits."""
        longest = max(self._flows.values(), key=lambda flow: len(flow.waiting), default=None)
        return longest.waiting[-1] if longest and longest.waiting else None

    def _move(self, key: str, flow: _Flow, tokens: float) -> None:
        """Advance the virtual start time of a key, or move it back."""
        flow.start += tokens
        self._put_in_order(key, flow)

    def _put_in_order(self, key: str, flow: _Flow) -> None:
        if flow.waiting:
            heapq.heappush(self._order, (flow.start, flow.number, key))

    def _drop_idle(self, key: str, flow: _Flow) -> None:
        """Drop an idle key without debt, and all keys once everything is idle."""
        if flow.waiting or flow.running:
            return
        # A later start is debt from an earlier cost: a key must not lose it by pausing.
        if flow.start <= self._now:
            del self._flows[key]
        if not self._waiting and not self._running:
            self._flows.clear()
            self._order.clear()
            self._now = 0.0


MAX_EXCLUSIVE = 10.0
"""Longest exclusive time in seconds. A prompt of 8,000 tokens takes longer to read, and a short
question does not wait for all of it."""

DECODE_GRACE = 2.0
"""Exclusive seconds after the first token: enough for most chat answers of a small model."""

_EMA_ALPHA = 0.2
"""Weight of the latest request in the moving average of service times."""


class Scheduler:
    """The slots of one engine and the requests for them. Times are seconds of any one clock."""

    def __init__(
        self,
        slots: int,
        *,
        reserved: int = 0,
        share: float = 0.1,
        most_waiting: int = 256,
        preemptive: bool = False,
    ) -> None:
        self.slots = slots
        self.preemptive = preemptive
        self._background_slots = max(1, slots - reserved)
        self._owed_per_token = share / (1 - share)
        self._most_waiting = most_waiting
        # By priority: `request.background`.
        self._queues = {False: FairQueue(), True: FairQueue()}
        self._running: set[QueuedRequest] = set()
        # Running requests without a first token; the value is what each was charged of
        # `_owed`.
        self._prefilling: dict[QueuedRequest, float] = {}
        self._running_by_key: Counter[str] = Counter()
        # Tokens owed to background requests; below 0 when they have had more than their share.
        self._owed = 0.0
        self._mean = 0.0

    @property
    def running(self) -> int:
        """The number of running requests."""
        return len(self._running)

    @property
    def exclusive_until(self) -> float:
        """The time before which nothing may be started; 0 if no running request is exclusive."""
        if not self.preemptive:
            return 0.0
        return max((request.exclusive_until for request in self._running), default=0.0)

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._queues[False]) + len(self._queues[True])

    def resize(self, slots: int, reserved: int) -> None:
        """Set the number of slots, and how many of them background leaves free."""
        self.slots = slots
        self._background_slots = max(1, slots - reserved)

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""
        return len(self._queues[background])

    def arrive(self, request: QueuedRequest) -> QueuedRequest | None:
        """Queue `request`; return what a full queue evicts: another request, itself, or None."""
        queue, loser = self._queues[request.background], None
        if self.waiting >= self._most_waiting:
            loser = None if request.background else self._queues[True].longest_queue_tail()
            if loser is None:
                loser = queue.longest_queue_tail()
                most = queue.waiting_count(loser.key) if loser else 0
                # By more than one: else two keys could evict each other's requests by turns.
                if most <= queue.waiting_count(request.key) + 1:
                    return request
        queue.add(request)
        if loser is not None:
            self.cancel(loser)
        return loser

    def start(self, now: float) -> QueuedRequest | None:
        """Start and return the next request; None if none may start now."""
        if self.running >= self.slots or self.exclusive_until > now:
            return None
        interactive = self._queues[False].head(self._may_run)
        request = background = self._queues[True].head(self._may_run)
        if not self._queues[True]:
            self._owed = 0.0  # nothing is owed while nothing waits for it
        # A request that is owed its cost runs even in a reserved slot, or beside a prefill.
        if background is None or self._owed < background.cost:
            in_background = sum(each.background for each in self._running)
            has_slot = in_background < self._background_slots and not self._is_awaited()
            request = interactive or (background if has_slot else None)
        if request is None:
            return None
        self._queues[request.background].start(request)
        self._running.add(request)
        self._running_by_key[request.key] += 1
        request.started, owed = now, self._owed
        request.exclusive_until = (
            now + MAX_EXCLUSIVE if self.preemptive and not request.background else 0.0
        )
        if request.background:
            self._owed = self._clamp_owed(self._owed - request.cost)
        # A background request that was owed its slot is never preempted, or it might starve. For
        # the others the actual change of `_owed`, which `_clamp_owed` may have limited,
        # is kept: preemption refunds it.
        if self.preemptive and not (request.background and owed >= request.cost):
            self._prefilling[request] = owed - self._owed
        return request

    def on_first_token(self, request: QueuedRequest, now: float) -> None:
        """Record the first token of a running request."""
        self._prefilling.pop(request, None)
        request.exclusive_until = min(request.exclusive_until, now + DECODE_GRACE)

    def preemptible(self) -> list[QueuedRequest]:
        """Return the background requests to preempt now."""
        # Only for an interactive request that is prefilling or could start: one whose key is at its
        # limit of parallel requests could not use the slot.
        if not self._is_awaited() and self._queues[False].head(self._may_run) is None:
            return []
        return [request for request in self._prefilling if request.background]

    def requeue(self, request: QueuedRequest) -> None:
        """Queue a preempted request again, and refund what it was charged."""
        self._owed += self._prefilling.pop(request)
        self._stop(request)
        self._queues[request.background].requeue(request)

    def end(self, request: QueuedRequest, now: float, cost: float) -> None:
        """End a running request; `cost` is the number of tokens it actually took."""
        assert request.started is not None
        seconds = now - request.started
        self._prefilling.pop(request, None)
        self._stop(request)
        self._queues[request.background].end(request, cost)
        # A request that failed without computing anything says nothing about service times.
        if cost:
            self._mean += (seconds - self._mean) * _EMA_ALPHA if self._mean else seconds
        if request.background:
            self._owed = self._clamp_owed(self._owed - (cost - request.cost))
        elif self._queues[True]:
            # A share s of all tokens is s / (1 - s) for each interactive token. It accrues only
            # while background requests wait, so that it cannot be saved up.
            self._owed += cost * self._owed_per_token

    def cancel(self, request: QueuedRequest) -> None:
        """Remove a waiting request."""
        self._queues[request.background].remove(request)

    def drain_seconds(self, now: float) -> float:
        """Estimate the seconds until all requests waiting now have started, at the recent pace."""
        # The ages of running requests count too: the mean learns of a slow answer only at its end.
        ages = [now - request.started for request in self._running if request.started is not None]
        each = max(self._mean, sum(ages) / len(ages) if ages else 0.0)
        return self.waiting * each / self.slots

    def _stop(self, request: QueuedRequest) -> None:
        request.started = None
        self._running.remove(request)
        self._running_by_key[request.key] -= 1
        if not self._running_by_key[request.key]:
            del self._running_by_key[request.key]

    def _is_awaited(self) -> bool:
        """Return whether an interactive request is running without a first token."""
        return any(not request.background for request in self._prefilling)

    def _clamp_owed(self, tokens: float) -> float:
        """Return `tokens`, but at least 0 unless interactive requests wait.

        Background does not owe for tokens that nobody else wanted.
        """
        return tokens if self._queues[False] else max(0.0, tokens)

    def _may_run(self, request: QueuedRequest) -> bool:
        return request.parallel is None or self._running_by_key[request.key] < request.parallel
