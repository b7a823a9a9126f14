"""The places of an engine, whatever clients do, without a clock or a socket."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent_server.admission.scheduler import QueuedRequest, Scheduler


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
