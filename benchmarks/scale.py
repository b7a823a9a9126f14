"""Discrete-event simulation of admission for 10,000 tendrils with a million channels.

The scheduler is the real one; time is virtual, and the engines are slots in which an answer takes
a time proportional to its tokens. It measures how long requests wait, how tokens are shared, and
the CPU cost of a scheduling decision; it says nothing about the speed of an engine.

Assumptions: questions arrive as a Poisson process, channels are distributed over tendrils by Zipf's
law, and lengths are lognormal, as is typical of chats. A slot is one sequence of a batch on a GPU.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import math
import random
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import mean

from agent_server.admission.admission import AdmissionPolicy
from agent_server.admission.scheduler import QueuedRequest, Scheduler
from benchmarks.figure import Figure, percentile

TENDRILS, CHANNELS = 10_000, 1_000_000
SLOTS = 512  # such as 8 GPUs with 64 sequences each
WAITING = 4_096
PREFILL, DECODE = 4_000.0, 40.0  # tokens a second, of one sequence
PROMPT, ANSWER = 800.0, 120.0  # tokens, the median
SPREAD = 0.7  # sigma of the lognormal distribution
ESTIMATE = PROMPT + ANSWER  # estimated tokens of a request, charged until it ends
BACKGROUND = 0.2  # share of the requests
SECONDS, WARM = 300.0, 60.0  # simulated; the warm-up is not counted
OVERLOADED = 2_400.0  # seconds simulated at loads above 1, longer than background may wait
RETRIES, RETRY_AFTER = 2, 5.0  # of a refused request, as OpenAI's clients do, and the pause before
LARGE = 100  # the largest tendrils, which have about half of all channels
FLOODERS, OUTSTANDING = 100, 20
BACKLOGGED = (8, 24)  # answers per tendril, in two runs in which all tendrils are backlogged


@dataclass(slots=True)
class Outcome:
    """The results of a simulation after its warm-up.

    `waits` (seconds) and `refused` are by kind of tendril and True for background requests,
    `tokens` by tendril. A wait is from the first try. Requests that wait at the end count with
    their wait so far; `refused` are those that gave up after their retries.
    """

    waits: dict[tuple[str, bool], list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[tuple[str, bool]] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    background_tokens: float = 0.0
    decisions: int = 0
    seconds: float = 0.0
    """CPU time of all scheduling decisions."""


class Fleet:
    """Simulated engines behind one scheduler, with a virtual clock in seconds.

    `again` is called with each request that has ended or was refused.
    """

    def __init__(self, slots: int = SLOTS, waiting: int = WAITING, warm: float = WARM) -> None:
        policy = AdmissionPolicy()
        self.scheduler = Scheduler(
            slots,
            reserved=slots // 4,
            share=policy.background_share,
            most_waiting=waiting,
        )
        self.now, self.outcome, self._warm = 0.0, Outcome(), warm
        self.again: Callable[[QueuedRequest], None] = lambda _: None
        self._patience = {False: policy.max_wait, True: policy.max_wait_background}
        self._random = random.Random(17)
        # The number keeps simultaneous events in order and callables from being compared.
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._waiting: set[QueuedRequest] = set()
        self._tries: dict[QueuedRequest, tuple[int, float]] = {}  # and the time of the first one

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Schedule a callback for the virtual time `when`."""
        heapq.heappush(self._events, (when, next(self._number), event))

    def run(self, until: float) -> Outcome:
        """Process all events up to the virtual time `until` and return the outcome so far."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        for request in self._waiting:
            self._note_wait(request)
        return self.outcome

    def ask(
        self,
        key: str,
        *,
        background: bool = False,
        weight: float = 1.0,
        tries: int = 0,
        first: float | None = None,
    ) -> None:
        """Submit a request at the current virtual time, after `tries` others since `first`."""
        request = QueuedRequest(key, ESTIMATE, weight, background, arrived=self.now)
        self._tries[request] = tries, self.now if first is None else first
        began = time.thread_time()
        loser = self.scheduler.arrive(request)  # refused for lack of room: this or a queued one
        self._count(began)
        if loser is not request:
            self._waiting.add(request)
            self.at(self.now + self._patience[background], lambda: self._give_up(request))
        if loser is not None:
            self._waiting.discard(loser)
            self._refuse(loser)
        self._dispatch()

    def _dispatch(self) -> None:
        while True:
            began = time.thread_time()
            request = self.scheduler.start(self.now)
            self._count(began)
            if request is None:
                return
            self._begin(request)

    def _begin(self, request: QueuedRequest) -> None:
        self._waiting.discard(request)
        self._note_wait(request)
        prompt, answer = self._length(PROMPT), self._length(ANSWER)
        took = prompt / PREFILL + answer / DECODE
        self.at(self.now + took, lambda: self._end(request, prompt + answer))

    def _end(self, request: QueuedRequest, cost: float) -> None:
        began = time.thread_time()
        self.scheduler.end(request, self.now, cost)
        self._count(began)
        if self.now >= self._warm:
            self.outcome.tokens[request.key] += round(cost)
            self.outcome.background_tokens += cost if request.background else 0.0
        self._dispatch()
        self.again(request)

    def _note_wait(self, request: QueuedRequest) -> None:
        _, first = self._tries.pop(request)
        if first >= self._warm:
            self.outcome.waits[_kind(request), request.background].append(self.now - first)

    def _give_up(self, request: QueuedRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            self.scheduler.cancel(request)
            self._refuse(request)

    def _refuse(self, request: QueuedRequest) -> None:
        tries, first = self._tries.pop(request)
        if tries < RETRIES and _kind(request) != "flood":
            again = partial(
                self.ask,
                request.key,
                background=request.background,
                weight=request.weight,
                tries=tries + 1,
                first=first,
            )
            self.at(self.now + RETRY_AFTER, again)
            return
        if first >= self._warm:
            self.outcome.refused[_kind(request), request.background] += 1
        self.again(request)

    def _count(self, began: float) -> None:
        self.outcome.seconds += time.thread_time() - began
        self.outcome.decisions += 1

    def _length(self, median: float) -> float:
        return median * self._random.lognormvariate(0.0, SPREAD)


class Crowd:
    """A million channels, distributed over the tendrils, whose questions arrive at random."""

    def __init__(self) -> None:
        self._random = random.Random(23)
        sizes = [1 / rank for rank in range(1, TENDRILS + 1)]
        owners = self._random.choices(range(TENDRILS), sizes, k=CHANNELS - TENDRILS)
        self._owners = [*range(TENDRILS), *owners]  # every tendril has at least one channel

    def ask(self, fleet: Fleet, load: float) -> None:
        """Submit questions at a rate that keeps the share `load` of all slots busy on average."""
        every = _mean_seconds() / (SLOTS * load)

        def arrive() -> None:
            channel = self._random.randrange(CHANNELS)
            background = self._random.random() < BACKGROUND
            fleet.ask(f"tendril {self._owners[channel]}", background=background)
            fleet.at(fleet.now + self._random.expovariate(1 / every), arrive)

        fleet.at(0.0, arrive)


def _mean_seconds() -> float:
    """Return the mean seconds of an answer (a lognormal's mean is exp(sigma^2 / 2) medians)."""
    return (PROMPT / PREFILL + ANSWER / DECODE) * math.exp(SPREAD * SPREAD / 2)


async def figures() -> AsyncIterator[Figure]:
    """Yield waits by priority, shares of tokens, the time of a decision, and memory."""
    crowd = Crowd()
    waits: dict[str, list[float]] = {}
    for name, load in (("load 0.8", 0.8), ("load 0.95", 0.95), ("load 1.3", 1.3)):
        fleet = Fleet()
        crowd.ask(fleet, load)
        outcome = fleet.run(SECONDS if load <= 1 else OVERLOADED)
        waits[name] = outcome.waits["small", False]
        for figure in _figures(name, outcome):
            yield figure
    flooded = _flooded(crowd)
    for figure in _figures("load 0.8 and a flood", flooded):
        yield figure
    calm = percentile(waits["load 0.8"], 0.99)
    others = percentile(flooded.waits["small", False], 0.99)
    yield Figure("flood: small tendrils' wait, p99, more by", others - calm, "s", 1.0)
    flood = [tokens for key, tokens in flooded.tokens.items() if key.startswith("flood")]
    yield Figure("flood: largest share / smallest", max(flood) / min(flood), "x", 1.2)
    for answers in BACKLOGGED:
        for figure in _backlogged(answers):
            yield figure
    for figure in _memory():
        yield figure


def _kind(request: QueuedRequest) -> str:
    """Return "flood" for a flooding tendril, else "large" or "small"."""
    kind, _, number = request.key.partition(" ")
    return kind if kind == "flood" else "large" if int(number) < LARGE else "small"


def _figures(name: str, outcome: Outcome) -> list[Figure]:
    found = []
    for size, background in itertools.product(("small", "large"), (False, True)):
        kind = f"{size}, {'background' if background else 'interactive'}"
        waits, refused = outcome.waits[size, background], outcome.refused[size, background]
        if waits:
            found.append(Figure(f"{name}: {kind}: wait, median", percentile(waits, 0.5), "s"))
            found.append(Figure(f"{name}: {kind}: wait, p99", percentile(waits, 0.99), "s"))
        found.append(
            Figure(f"{name}: {kind}: refused", 100 * refused / max(1, len(waits) + refused), "%")
        )
    share = outcome.background_tokens / outcome.tokens.total()
    found.append(Figure(f"{name}: background's tokens", 100 * share, "%"))
    found.append(Figure(f"{name}: a decision", 1e6 * outcome.seconds / outcome.decisions, "us"))
    return found


def _flooded(crowd: Crowd) -> Outcome:
    """Simulate the crowd at load 0.8 with FLOODERS tendrils that keep OUTSTANDING requests each."""
    fleet = Fleet()
    crowd.ask(fleet, 0.8)

    def again(request: QueuedRequest) -> None:
        if request.key.startswith("flood"):  # ask again after a second, whatever Retry-After says
            fleet.at(fleet.now + 1.0, lambda: fleet.ask(request.key))

    fleet.again = again
    for number in range(FLOODERS):
        for _ in range(OUTSTANDING):
            fleet.at(number / FLOODERS, lambda key=f"flood {number}": fleet.ask(key))  # type: ignore[misc]
    return fleet.run(SECONDS)


def _backlogged(answers: int) -> list[Figure]:
    """Simulate tendrils that always have two requests outstanding; every fourth has weight 3."""
    name = f"all wait, {answers} answers each"
    round_seconds = _mean_seconds() * TENDRILS / SLOTS
    fleet = Fleet(waiting=3 * TENDRILS, warm=0.0)
    weights = {f"tendril {number}": 1.0 if number % 4 else 3.0 for number in range(TENDRILS)}
    fleet.again = lambda request: fleet.ask(request.key, weight=request.weight)
    for key, weight in weights.items():
        for _ in range(2):
            fleet.at(0.0, lambda key=key, weight=weight: fleet.ask(key, weight=weight))  # type: ignore[misc]
    outcome = fleet.run(answers * round_seconds)
    shares = [outcome.tokens[key] / weight for key, weight in weights.items()]
    heavy = [outcome.tokens[key] for key, weight in weights.items() if weight > 1]
    light = [outcome.tokens[key] for key, weight in weights.items() if weight == 1]
    return [
        Figure(f"{name}: tokens by weight, p99 / p1", _spread(shares), "x", 1.5),
        Figure(f"{name}: largest share / smallest", max(shares) / min(shares), "x"),
        Figure(f"{name}: weight 3 / weight 1", mean(heavy) / mean(light), "x", 3.3, 2.7),
        Figure(f"{name}: a decision", 1e6 * outcome.seconds / outcome.decisions, "us"),
    ]


def _spread(values: list[float]) -> float:
    return percentile(values, 0.99) / percentile(values, 0.01)


def _memory() -> list[Figure]:
    """Return the bytes of memory per waiting tendril, with one request each."""
    gc.collect()
    tracemalloc.start()
    scheduler = Scheduler(1, most_waiting=TENDRILS)
    for number in range(TENDRILS):
        scheduler.arrive(QueuedRequest(f"tendril {number}", ESTIMATE))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [Figure("memory of a waiting tendril", size / TENDRILS, "B")]
