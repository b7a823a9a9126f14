"""Which request runs next, without a clock or a socket of its own.

The rules:

- At most `places` run at once, at most `request.parallel` of one key.
- Interactive requests go before background ones, which leave `reserved` places free, so that
  somebody who asks does not wait for the end of a long answer that nobody waits for.
- While background waits it is owed `share` of all tokens that are computed. As soon as it is owed
  as much as its next request will cost, that request goes first, and into a reserved place if need
  be: so it never starves.
- Where the requests that run share one processor (`yields`), background keeps out of the way until
  an interactive request has its first token: none is started meanwhile, and one that has not said
  a word yet makes room and begins again later. Its prompt is long work that cannot be shared out;
  the words after it are short steps that can. What background is owed is left alone.
- There an interactive request is also alone for `DECODE_GRACE` seconds from its first token on, but
  no longer than `MAX_EXCLUSIVE` in all: nothing is started beside it. Two prompts side by side
  would both be read when the second alone would be, and every word of an answer would wait for a
  piece of the other's prompt. So most answers are whole before the next prompt is read, and a long
  one is written while others are read.
- Within each of the two the order is that of `FairQueue`.
- At most `most_waiting` wait. In a full queue the key with most requests loses its newest one to a
  key with fewer, and a background request its place to an interactive one: a flood keeps nobody
  out. Source of this longest-queue drop: McKenney, "Stochastic Fairness Queueing", 1990.
"""

from __future__ import annotations

from collections import Counter

from agent_server.admission.fair_queue import FairQueue, QueuedRequest

MAX_EXCLUSIVE = 10.0
"""Seconds; an 8,000-token prompt takes longer, and a short question does not wait for it."""

DECODE_GRACE = 2.0
"""Seconds, in which a small model writes most answers that are read in a chat."""

_NEWEST = 0.2
"""How much the last request counts in the running mean of service times."""


class Scheduler:
    """The places of one engine, and who waits for them. Times are seconds of any clock."""

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
        """How many requests run."""
        return len(self._running)

    @property
    def exclusive_until(self) -> float:
        """Until when nothing is started, as one that runs is to be alone."""
        return max((request.exclusive_until for request in self._running), default=0.0)

    def waiting_count(self, *, background: bool) -> int:
        """How many requests of this priority wait."""
        return len(self._queues[background])

    def arrive(self, request: QueuedRequest) -> QueuedRequest | None:
        """Let `request` wait. Returns the one that must go for it: another, itself, or None."""
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
        if self.yields and not (request.background and owed >= request.cost):
            self._prefilling[request] = owed - self._owed
        return request

    def on_first_token(self, request: QueuedRequest, now: float) -> None:
        """The first part of the answer to a running request has come."""
        self._prefilling.pop(request, None)
        request.exclusive_until = min(request.exclusive_until, now + DECODE_GRACE)

    def preemptible(self) -> list[QueuedRequest]:
        """The background requests that must make room now."""
        if not self._is_awaited() and self._queues[False].head(self._may_run) is None:
            return []
        return [request for request in self._prefilling if request.background]

    def requeue(self, request: QueuedRequest) -> None:
        """A running request has made room: it waits again."""
        self._owed += self._prefilling.pop(request)
        self._stop(request)
        self._queues[request.background].requeue(request)

    def end(self, request: QueuedRequest, now: float, cost: float) -> None:
        """A running request has ended; it has really cost `cost` tokens."""
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
            self._owed += cost * self._owed_per_token

    def cancel(self, request: QueuedRequest) -> None:
        """A waiting request goes away."""
        self._queues[request.background].remove(request)

    def drain_seconds(self, now: float) -> float:
        """How long it takes until all that wait now have started, as fast as it went lately."""
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
        """Whether somebody waits for the first word of a running request."""
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
        """What background is owed; it is not in debt for what nobody else wanted."""
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
