"""Waiting requests of several keys, in an order that gives each key its share of tokens.

Start-time fair queueing: each key has a virtual start time, the key with the earliest goes next,
and its time then moves on by cost divided by weight. A key that comes back after a pause starts at
the present virtual time, so that it can neither save up nor be in debt for it.
Source: Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996.

What an answer costs is known only when it ends, so the estimate is then set right, as in Sheng et
al., "Fairness in Serving Large Language Models", OSDI 2024.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One request: whose it is, and how many tokens it is expected to cost.

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
    """The requests of one key: `start` is its virtual time."""

    start: float
    running: int = 0
    waiting: deque[QueuedRequest] = field(default_factory=deque)


class FairQueue:
    """The requests that wait, and the virtual time."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}
        self._now = 0.0
        self._waiting = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting

    def waiting_count(self, key: str) -> int:
        """How many requests of `key` wait."""
        flow = self._flows.get(key)
        return len(flow.waiting) if flow else 0

    def add(self, request: QueuedRequest) -> None:
        """Let `request` wait."""
        flow = self._flows.get(request.key)
        if flow is None:
            flow = self._flows[request.key] = _Flow(self._now)
        elif not flow.waiting:
            flow.start = max(flow.start, self._now)
        flow.waiting.append(request)
        self._waiting += 1

    def head(self, may_run: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """The request whose turn it is, among those that `may_run`."""
        best: _Flow | None = None
        for flow in self._flows.values():
            if not flow.waiting or (best is not None and flow.start >= best.start):
                continue
            if may_run(flow.waiting[0]):
                best = flow
        return best.waiting[0] if best else None

    def start(self, request: QueuedRequest) -> None:
        """Take out the `request` that was the head: it runs now."""
        flow = self._flows[request.key]
        flow.waiting.popleft()
        flow.running += 1
        self._waiting -= 1
        self._now = max(self._now, flow.start)
        flow.start += request.cost / request.weight

    def requeue(self, request: QueuedRequest) -> None:
        """A request that ran is the first of its key to wait again, as if it had never run."""
        flow = self._flows[request.key]
        flow.running -= 1
        flow.waiting.appendleft(request)
        self._waiting += 1
        flow.start -= request.cost / request.weight

    def end(self, request: QueuedRequest, cost: float) -> None:
        """A request that ran has ended, and has really cost `cost`."""
        flow = self._flows[request.key]
        flow.running -= 1
        flow.start += (cost - request.cost) / request.weight
        self._drop_idle(request.key, flow)

    def remove(self, request: QueuedRequest) -> None:
        """Take out a request that waits no longer."""
        flow = self._flows[request.key]
        flow.waiting.remove(request)
        self._waiting -= 1
        self._drop_idle(request.key, flow)

    def longest_queue_tail(self) -> QueuedRequest | None:
        """The last request of the key that has most of them waiting."""
        longest = max(self._flows.values(), key=lambda flow: len(flow.waiting), default=None)
        return longest.waiting[-1] if longest and longest.waiting else None

    def _drop_idle(self, key: str, flow: _Flow) -> None:
        """Forget a key that owes nothing, and all of them when nobody is left."""
        if flow.waiting or flow.running:
            return
        if flow.start <= self._now:
            del self._flows[key]
        if not any(each.waiting or each.running for each in self._flows.values()):
            self._flows.clear()
            self._now = 0.0
