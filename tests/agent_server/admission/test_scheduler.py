"""The order of requests, without a clock or a socket."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_server.admission.scheduler import (
    DECODE_GRACE,
    MAX_EXCLUSIVE,
    FairQueue,
    QueuedRequest,
    Scheduler,
)

GUESS = 128


class Simulation:
    """Clients that each send their next request when one of their own has ended.

    What an answer costs is random, and known to the scheduler only when it has ended. The first
    word comes after half of it.
    """

    def __init__(
        self, scheduler: Scheduler, seed: int, **make: Callable[[], QueuedRequest]
    ) -> None:
        self.tokens: Counter[str] = Counter()
        self._scheduler = scheduler
        self._make = make
        self._random = random.Random(seed)
        self._now = 0.0
        self._coming: list[tuple[float, int, QueuedRequest]] = []

    def run(self, outstanding: int, steps: int) -> None:
        for key in sorted(self._make) * outstanding:
            self._arrive(key)
        for _ in range(2 * steps):
            self._step()

    def _step(self) -> None:
        self._coming.sort(key=lambda entry: entry[0])
        self._now, cost, request = self._coming.pop(0)
        if cost:
            self._scheduler.end(request, self._now, cost)
            self.tokens[request.key] += cost
            self._arrive(request.key)
        else:
            self._scheduler.on_first_token(request, self._now)
        self._fill()

    def _arrive(self, key: str) -> None:
        self._scheduler.arrive(self._make[key]())
        for other in self._scheduler.preemptible():
            self._coming = [entry for entry in self._coming if entry[2] is not other]
            self._scheduler.requeue(other)
        self._fill()

    def _fill(self) -> None:
        while request := self._scheduler.start(self._now):
            cost = self._random.randint(20, 400)
            self._coming += [(self._now + cost / 2, 0, request), (self._now + cost, cost, request)]


@given(seed=st.integers(0, 99), slots=st.integers(1, 4), weight=st.sampled_from([1.0, 2.0, 3.0]))
@settings(max_examples=15, deadline=None)
def test_tokens_are_shared_by_weight_within_ten_percent(
    seed: int, slots: int, weight: float
) -> None:
    simulation = Simulation(
        Scheduler(slots),
        seed,
        heavy=lambda: QueuedRequest("heavy", GUESS, weight),
        light=lambda: QueuedRequest("light", GUESS),
    )
    simulation.run(outstanding=3 * slots + 3, steps=1500)
    ratio = simulation.tokens["heavy"] / simulation.tokens["light"]
    assert ratio == pytest.approx(weight, rel=0.1)


def test_the_one_who_comes_back_can_neither_save_up_nor_owe() -> None:
    queue = FairQueue()

    def start() -> str:
        head = queue.head(lambda _: True)
        assert head is not None
        queue.start(head)
        return head.key

    for _ in range(50):
        queue.add(QueuedRequest("busy", 100))
    for _ in range(30):
        start()
    for _ in range(10):
        queue.add(QueuedRequest("new", 100))
    assert [start() for _ in range(10)].count("new") == 5


@pytest.mark.parametrize(
    ("share", "reserved", "preemptive"),
    [(0.1, 0, False), (0.25, 0, False), (0.3, 3, False), (0.2, 0, True), (0.2, 2, True)],
)
@given(slots=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_background_gets_its_share_of_a_busy_engine_and_no_more(
    share: float, reserved: int, preemptive: bool, slots: int, seed: int
) -> None:
    simulation = Simulation(
        Scheduler(slots, reserved=min(reserved, slots - 1), share=share, preemptive=preemptive),
        seed,
        cron=lambda: QueuedRequest("cron", GUESS, background=True),
        irc=lambda: QueuedRequest("irc", GUESS),
    )
    simulation.run(outstanding=2 * slots, steps=1500)
    got = simulation.tokens["cron"] / simulation.tokens.total()
    assert got == pytest.approx(share, rel=0.15)


def test_background_leaves_the_reserved_places_free() -> None:
    scheduler = Scheduler(4, reserved=1)
    for _ in range(10):
        scheduler.arrive(QueuedRequest("cron", 10, background=True))
    assert [bool(scheduler.start(0)) for _ in range(4)] == [True, True, True, False]
    scheduler.arrive(question := QueuedRequest("irc", 10))
    assert scheduler.start(0) is question
    only = Scheduler(1, reserved=1)  # but alone it may have the only place
    only.arrive(job := QueuedRequest("cron", 10, background=True))
    assert only.start(0) is job


def test_background_that_made_room_is_next_of_its_key_and_owes_nothing_for_it() -> None:
    scheduler = Scheduler(1, preemptive=True)
    first, second = (QueuedRequest("cron", 100, background=True) for _ in range(2))
    scheduler.arrive(first)
    scheduler.arrive(second)
    assert scheduler.start(0) is first
    assert scheduler.preemptible() == []
    scheduler.arrive(question := QueuedRequest("irc", 10))
    assert scheduler.preemptible() == [first]
    scheduler.requeue(first)
    assert scheduler.start(1) is question
    scheduler.end(question, 2, 10)
    assert [scheduler.running, scheduler.waiting_count(background=True)] == [0, 2]
    assert scheduler.start(2) is first
    scheduler.on_first_token(first, 2)
    scheduler.arrive(QueuedRequest("irc", 10))
    assert scheduler.preemptible() == []


def test_background_makes_no_room_if_it_was_owed_its_slot_or_nobody_could_take_it() -> None:
    scheduler = Scheduler(1, share=0.5, preemptive=True)
    scheduler.arrive(first := QueuedRequest("irc", 100))
    assert scheduler.start(0) is first
    scheduler.arrive(job := QueuedRequest("cron", 100, background=True))
    scheduler.arrive(QueuedRequest("irc", 100))
    scheduler.end(first, 1, 100)
    assert scheduler.start(1) is job
    assert scheduler.preemptible() == []
    scheduler = Scheduler(2, preemptive=True)
    scheduler.arrive(running := QueuedRequest("irc", 10, parallel=1))
    assert scheduler.start(0) is running
    scheduler.on_first_token(running, 0)
    scheduler.arrive(QueuedRequest("cron", 100, background=True))
    assert scheduler.start(DECODE_GRACE)
    scheduler.arrive(QueuedRequest("irc", 10, parallel=1))
    assert scheduler.preemptible() == []


def test_nothing_is_started_beside_one_who_is_to_be_alone() -> None:
    scheduler = Scheduler(3, preemptive=True)
    first, second, third = (QueuedRequest("irc", 10) for _ in range(3))
    scheduler.arrive(first)
    scheduler.arrive(second)
    assert scheduler.start(0) is first
    assert scheduler.start(5) is None
    scheduler.on_first_token(first, 5)
    assert scheduler.start(4.9 + DECODE_GRACE) is None
    assert scheduler.start(5 + DECODE_GRACE) is second
    scheduler.arrive(third)
    assert scheduler.exclusive_until == 5 + DECODE_GRACE + MAX_EXCLUSIVE
    assert scheduler.start(scheduler.exclusive_until - 1) is None
    assert scheduler.start(scheduler.exclusive_until) is third
    # Also when it has ended; and background keeps nobody from beginning.
    for request in (first, second, third):
        scheduler.end(request, 20, 10)
    scheduler.arrive(job := QueuedRequest("cron", 10, background=True))
    assert scheduler.start(20) is job
    scheduler.on_first_token(job, 21)
    scheduler.arrive(last := QueuedRequest("irc", 10))
    assert scheduler.start(21) is last


def test_an_interactive_request_takes_the_queue_place_of_a_background_one() -> None:
    scheduler = Scheduler(1, most_waiting=2)
    jobs = [QueuedRequest(f"cron{n}", 10, background=True) for n in range(3)]
    for job in jobs:
        scheduler.arrive(job)
        scheduler.start(0)
    assert scheduler.arrive(QueuedRequest("irc", 10)) in jobs[1:]
    scheduler.arrive(QueuedRequest("irc", 10))
    late = QueuedRequest("cron", 10, background=True)
    assert scheduler.arrive(late) is late


def test_the_time_to_drain_is_measured() -> None:
    scheduler = Scheduler(2)
    for _ in range(8):
        scheduler.arrive(QueuedRequest("a", 10))
    running = [scheduler.start(0), scheduler.start(0)]
    assert scheduler.drain_seconds(3) == pytest.approx(6 * 3 / 2)
    for request in running:
        assert request
        scheduler.end(request, 4, 10)
    assert scheduler.drain_seconds(4) == pytest.approx(6 * 4 / 2)


class Places(RuleBasedStateMachine):
    """Whatever clients do, no place and no request is lost, and the limits hold."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[QueuedRequest] = []
        self.running: list[QueuedRequest] = []
        self.now = 0.0

    @initialize(slots=st.integers(1, 4), reserved=st.integers(0, 2), preemptive=st.booleans())
    def begin(self, slots: int, reserved: int, preemptive: bool) -> None:
        self.slots = slots
        self.scheduler = Scheduler(slots, reserved=reserved, most_waiting=5, preemptive=preemptive)

    @rule(
        key=st.sampled_from("abc"),
        background=st.booleans(),
        cost=st.floats(1, 500),
        parallel=st.sampled_from([None, 1, 2]),
    )
    def arrive(self, key: str, background: bool, cost: float, parallel: int | None) -> None:
        request = QueuedRequest(key, cost, background=background, parallel=parallel)
        loser = self.scheduler.arrive(request)
        self.waiting.append(request)
        if loser is not None:
            self.waiting.remove(loser)
        self.fill()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def speak(self, data: st.DataObject) -> None:
        self.scheduler.on_first_token(data.draw(st.sampled_from(self.running)), self.now)
        self.fill()

    @rule()
    def make_room(self) -> None:
        for request in self.scheduler.preemptible():
            assert request.background
            self.running.remove(request)
            self.waiting.append(request)
            self.scheduler.requeue(request)
        self.fill()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cost=st.floats(0, 2000))
    def end(self, data: st.DataObject, cost: float) -> None:
        request = data.draw(st.sampled_from(self.running))
        self.running.remove(request)
        self.scheduler.end(request, self.now, cost)
        self.fill()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(request)
        self.scheduler.cancel(request)
        self.fill()

    def fill(self) -> None:
        self.now = max(self.now + 1, self.scheduler.exclusive_until)
        while request := self.scheduler.start(self.now):
            self.waiting.remove(request)
            self.running.append(request)
            self.now = max(self.now, self.scheduler.exclusive_until)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        interactive = self.scheduler.waiting_count(background=False)
        assert interactive + self.scheduler.waiting_count(background=True) == len(self.waiting)
        assert len(self.waiting) <= 5 + self.slots  # those that made room were let in before
        assert self.scheduler.running == len(self.running) <= self.slots

    @invariant()
    def no_place_is_idle_while_somebody_could_have_it(self) -> None:
        if not hasattr(self, "scheduler") or len(self.running) == self.slots:
            return
        of_key = Counter(request.key for request in self.running)
        for request in self.waiting:
            limited = any(
                other.parallel and of_key[other.key] >= other.parallel
                for other in self.waiting
                if other.key == request.key and other.background == request.background
            )
            assert limited or request.background


Places.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestPlaces = Places.TestCase
