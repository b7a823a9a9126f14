"""The order in which requests run, decided without a clock or a socket.

The rules of `Scheduler`:

- At most `places` run at once, at most `request.parallel` of one key.
- Interactive requests go before background ones, which leave `reserved` places free, so that a
  person does not wait for the end of a long answer that nobody waits for.
- While background waits it is owed `share` of all tokens that are computed. As soon as it is owed
  as much as its next request will cost, that request goes first, and into a reserved place if need
  be: so it never starves.
- Where requests share one processor (`yields`), no background request is started while an
  interactive one has no first token, and a running one without a first token of its own is
  preempted: it is queued again. Its prompt is long work that cannot be shared out; the tokens after
  it are short steps that can. What background is owed is left alone.
- There an interactive request is also alone for `DECODE_GRACE` seconds from its first token on, but
  no longer than `MAX_EXCLUSIVE` in all: nothing is started beside it. Two prompts side by side
  would both be read when the second alone would be, and every token of an answer would wait for a
  piece of the other's prompt. So most answers are whole before the next prompt is read, and a long
  one is written while others are read.
- Within each of the two priorities the order is that of `FairQueue`.
- At most `most_waiting` wait. In a full queue the key with most requests loses its newest one to a
  key with fewer, and a background request its place to an interactive one: a flood keeps nobody
  out. Source of this longest-queue drop: McKenney, "Stochastic Fairness Queueing", 1990.

The order of `FairQueue` gives each key its share of tokens by start-time fair queueing: each key
has a virtual start time, the key with the earliest goes next, and its time then moves on by cost
divided by weight. A key that comes back after a pause starts at the present virtual time, so that
it can neither save up nor be in debt for it. Source: Goyal, Vin, Cheng, "Start-time Fair Queueing",
SIGCOMM 1996. The cost of an answer is known only when it ends, so the estimate is then corrected,
as in Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One request of a key, and how many tokens it is expected to cost.

    `parallel` is how many requests of this key may run at once, None for any number; `arrived`
    and `started` are when it came and when it began to run, in seconds of any clock, and
    `exclusive_until` is how long no other is started beside it.
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
    """The requests of one key: `start` is its virtual time, `number` tells the order of keys."""

    start: float
    number: int
    running: int = 0
    waiting: deque[QueuedRequest] = field(default_factory=deque)


class FairQueue:
    """The requests that wait, and the virtual time."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        # Of each key that waits the entry with its present time; older entries are dropped when
        # they come to the top. So a decision among 10,000 keys looks at few of them.
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
        """Return the request whose turn it is, among those that `may_run`."""
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
                passed_over.append(heapq.heappop(self._order))
        for entry in passed_over:
            heapq.heappush(self._order, entry)
        return found

    def start(self, request: QueuedRequest) -> None:
        """Take out the `request` that was the head: it runs now."""
        flow = self._flows[request.key]
        flow.waiting.popleft()
        flow.running += 1
        self._running += 1
        self._waiting -= 1
        # Virtual time is the start of the request in service. It never goes back, so a key that was
        # idle joins at the present.
        self._now = max(self._now, flow.start)
        self._move(request.key, flow, request.cost / request.weight)

    def requeue(self, request: QueuedRequest) -> None:
        """Put a running request first in the queue of its key, as if it had never run."""
        flow = self._flows[request.key]
        flow.running -= 1
        self._running -= 1
        flow.waiting.appendleft(request)
        self._waiting += 1
        self._move(request.key, flow, -request.cost / request.weight)

    def end(self, request: QueuedRequest, cost: float) -> None:
        """Take out a running request, and correct its estimated cost to `cost`."""
        flow = self._flows[request.key]
        flow.running -= 1
        self._running -= 1
        # The start was moved by an estimate: what was over or under is made good now.
        self._move(request.key, flow, (cost - request.cost) / request.weight)
        self._drop_idle(request.key, flow)

    def remove(self, request: QueuedRequest) -> None:
        """Take out a waiting request."""
        flow = self._flows[request.key]
        flow.waiting.remove(request)
        self._waiting -= 1
        self._drop_idle(request.key, flow)

    def longest_queue_tail(self) -> QueuedRequest | None:
        """Return the last request of the key with the longest queue."""
        longest = max(self._flows.values(), key=lambda flow: len(flow.waiting), default=None)
        return longest.waiting[-1] if longest and longest.waiting else None

    def _move(self, key: str, flow: _Flow, tokens: float) -> None:
        """Move the virtual time of a key on, or back."""
        flow.start += tokens
        self._put_in_order(key, flow)

    def _put_in_order(self, key: str, flow: _Flow) -> None:
        if flow.waiting:
            heapq.heappush(self._order, (flow.start, flow.number, key))

    def _drop_idle(self, key: str, flow: _Flow) -> None:
        """Forget an idle key that owes nothing, and all keys when all are idle."""
        if flow.waiting or flow.running:
            return
        if flow.start <= self._now:
            del self._flows[key]
        if not self._waiting and not self._running:
            self._flows.clear()
            self._order.clear()
            self._now = 0.0


MAX_EXCLUSIVE = 10.0
"""Seconds; an 8,000-token prompt takes longer, and a short question does not wait for it."""

DECODE_GRACE = 2.0
"""Seconds, in which a small model writes most answers that are read in a chat."""

_NEWEST = 0.2
"""How much the last request counts in the running mean of service times."""


class Scheduler:
    """The places of one engine and the requests for them. Times are seconds of any clock."""

    def __init__(
        self,
        places: int,
        *,
        reserved: int = 0,
        share: float = 0.1,
        most_waiting: int = 256,
        yields: bool = False,
    ) -> None:
        self.places = places
        self.yields = yields
        self._background_places = max(1, places - reserved)
        self._owed_per_token = share / (1 - share)
        self._most_waiting = most_waiting
        self._queues = {False: FairQueue(), True: FairQueue()}
        self._running: set[QueuedRequest] = set()
        self._prefilling: dict[QueuedRequest, float] = {}
        self._of_key: Counter[str] = Counter()
        self._in_background = 0
        self._owed = 0.0
        self._mean = 0.0

    @property
    def running(self) -> int:
        """The number of running requests."""
        return len(self._running)

    @property
    def exclusive_until(self) -> float:
        """The time until which nothing is started, as a running request is to be alone."""
        if not self.yields:
            return 0.0
        return max((request.exclusive_until for request in self._running), default=0.0)

    def resize(self, places: int, reserved: int) -> None:
        """Set the places, and how many of them background leaves free."""
        self.places = places
        self._background_places = max(1, places - reserved)

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""
        return len(self._queues[background])

    def arrive(self, request: QueuedRequest) -> QueuedRequest | None:
        """Queue `request`. Returns the request that is evicted for it: another, itself, or None."""
        loser = self._evict(request) if self._waiting_total() >= self._most_waiting else None
        if loser is not request:
            self._queues[request.background].add(request)
        if loser is not None and loser is not request:
            self.cancel(loser)
        return loser

    def start(self, now: float) -> QueuedRequest | None:
        """Start the request whose turn it is; None when none may start."""
        may = self.running < self.places and self.exclusive_until <= now
        request = self._next() if may else None
        if request is None:
            return None
        self._queues[request.background].start(request)
        self._running.add(request)
        self._of_key[request.key] += 1
        request.started, owed = now, self._owed
        request.exclusive_until = (
            now + MAX_EXCLUSIVE if self.yields and not request.background else 0.0
        )
        if request.background:
            self._in_background += 1
            self._owed = self._deficit(self._owed - request.cost)
        # A background request that was owed its place is not preempted, or it might starve. Of the
        # others it is remembered what they were charged, to be given back when they are preempted.
        if self.yields and not (request.background and owed >= request.cost):
            self._prefilling[request] = owed - self._owed
        return request

    def on_first_token(self, request: QueuedRequest, now: float) -> None:
        """Record that the first token of a running request has come."""
        self._prefilling.pop(request, None)
        request.exclusive_until = min(request.exclusive_until, now + DECODE_GRACE)

    def preemptible(self) -> list[QueuedRequest]:
        """Return the background requests to preempt now."""
        if not self._is_awaited() and self._queues[False].head(self._may_run) is None:
            return []
        return [request for request in self._prefilling if request.background]

    def requeue(self, request: QueuedRequest) -> None:
        """Queue a preempted request again."""
        self._owed += self._prefilling.pop(request)
        self._stop(request)
        self._queues[request.background].requeue(request)

    def end(self, request: QueuedRequest, now: float, cost: float) -> None:
        """End a running request, which has cost `cost` tokens in fact."""
        assert request.started is not None
        seconds = now - request.started
        self._prefilling.pop(request, None)
        self._stop(request)
        self._queues[request.background].end(request, cost)
        if cost:
            self._mean += (seconds - self._mean) * _NEWEST if self._mean else seconds
        if request.background:
            self._owed = self._deficit(self._owed - (cost - request.cost))
        elif self._queues[True]:
            # For a share s of all tokens, background is owed s / (1 - s) for each of the others.
            self._owed += cost * self._owed_per_token

    def cancel(self, request: QueuedRequest) -> None:
        """Take out a waiting request."""
        self._queues[request.background].remove(request)

    def drain_seconds(self, now: float) -> float:
        """Estimate the seconds until all that wait now have started, at the recent pace."""
        ages = [now - request.started for request in self._running if request.started is not None]
        each = max(self._mean, sum(ages) / len(ages) if ages else 0.0)
        return self._waiting_total() * each / self.places

    def _stop(self, request: QueuedRequest) -> None:
        request.started = None
        self._running.remove(request)
        self._of_key[request.key] -= 1
        if not self._of_key[request.key]:
            del self._of_key[request.key]
        self._in_background -= request.background

    def _is_awaited(self) -> bool:
        """Return whether an interactive request runs that has no first token yet."""
        return any(not request.background for request in self._prefilling)

    def _waiting_total(self) -> int:
        return len(self._queues[False]) + len(self._queues[True])

    def _next(self) -> QueuedRequest | None:
        interactive = self._queues[False].head(self._may_run) if self._queues[False] else None
        if not self._queues[True]:
            self._owed = 0.0
            return interactive
        background = self._queues[True].head(self._may_run)
        if background is None or self._owed >= background.cost:
            return background or interactive
        has_place = self._in_background < self._background_places and not self._is_awaited()
        return background if interactive is None and has_place else interactive

    def _deficit(self, tokens: float) -> float:
        """Return what background is owed; it has no debt for tokens that no one else wanted."""
        return tokens if self._queues[False] else max(0.0, tokens)

    def _may_run(self, request: QueuedRequest) -> bool:
        return request.parallel is None or self._of_key[request.key] < request.parallel

    def _evict(self, newcomer: QueuedRequest) -> QueuedRequest:
        if not newcomer.background and (other := self._queues[True].longest_queue_tail()):
            return other
        queue = self._queues[newcomer.background]
        other = queue.longest_queue_tail()
        if other and queue.waiting_count(other.key) > queue.waiting_count(newcomer.key) + 1:
            return other
        return newcomer
