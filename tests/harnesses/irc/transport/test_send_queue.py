"""How fast lines go out, and how long to wait before connecting again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harnesses.irc.transport.connection import BURST, RATE, TokenBucketQueue, cost


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


SIZES = st.integers(1, 512)


@given(st.lists(SIZES, max_size=60), st.lists(st.floats(0, 5), max_size=40))
def test_no_stretch_of_time_gets_more_than_the_bucket_holds(
    sizes: list[int], steps: list[float]
) -> None:
    clock = Clock()
    pacing: TokenBucketQueue[int] = TokenBucketQueue(clock)
    for size in sizes:
        pacing.push(size, size)
    sent: list[tuple[float, float]] = []
    for step in [0.0, *steps]:
        clock.now += step
        while (taken := pacing.pop()) is not None:
            sent.append((clock.now, cost(taken)))
    for index, (start, _) in enumerate(sent):
        for end, _ in sent[index:]:
            spent = sum(price for at, price in sent if start <= at <= end)
            assert spent <= BURST + RATE * (end - start) + 1e-6


@given(st.lists(SIZES, min_size=1, max_size=40))
def test_waiting_as_told_gets_every_line_out_in_order(sizes: list[int]) -> None:
    clock = Clock()
    pacing: TokenBucketQueue[int] = TokenBucketQueue(clock)
    for number, size in enumerate(sizes):
        pacing.push(number, size)
    got: list[int] = []
    while (delay := pacing.delay()) is not None:
        clock.now += delay + 1e-9
        item = pacing.pop()
        assert item is not None, "the line may go when its time has come"
        got.append(item)
    assert got == list(range(len(sizes)))


def test_what_only_we_want_to_know_lets_answers_go_first() -> None:
    clock = Clock()
    pacing: TokenBucketQueue[str] = TokenBucketQueue(clock)
    for number in range(20):
        pacing.push(f"WHO {number}", 10, idle=True)
    said = [pacing.pop() for _ in range(5)]
    pacing.push("an answer", 10)
    clock.now += 2 / RATE
    assert [*said, pacing.pop(), pacing.pop()] == [
        *(f"WHO {number}" for number in range(5)),
        "an answer",
        "WHO 5",
    ]


def test_a_pong_overtakes_and_waits_for_nothing() -> None:
    pacing: TokenBucketQueue[str] = TokenBucketQueue(Clock())
    for _ in range(20):
        pacing.push("talk", 400)
    while pacing.pop():
        pass
    pacing.push("PONG", 20, urgent=True)
    assert pacing.delay() == 0.0
    assert pacing.pop() == "PONG"
    assert pacing.pop() is None


def test_long_lines_go_out_more_slowly_than_short_ones() -> None:
    def at_once(size: int) -> int:
        pacing: TokenBucketQueue[str] = TokenBucketQueue(Clock())
        for _ in range(20):
            pacing.push("x", size)
        return sum(1 for _ in iter(pacing.pop, None))

    assert at_once(40) == 5
    assert at_once(510) == 2


def test_what_is_left_can_be_given_up() -> None:
    pacing: TokenBucketQueue[str] = TokenBucketQueue(Clock())
    pacing.push("a", 10)
    pacing.push("b", 10, urgent=True)
    assert len(pacing) == 2
    assert pacing.clear() == ["b", "a"]
    assert pacing.delay() is None
