"""How fast lines go out, and in which order."""

from __future__ import annotations

import asyncio
import functools

from hypothesis import given
from hypothesis import strategies as st

from harnesses.irc.transport.connection import BURST, RATE, SendQueue, TokenBucket, cost
from tests.kit.clock import Seconds


class Wire:
    """An open send queue and what it has written, at a rate so low that only bursts go out."""

    def __init__(self, rate: float = 1e-6) -> None:
        self.lines: list[str] = []
        self.queue = SendQueue(self._write, rate)
        self.queue.open()

    def _write(self, line: str) -> bool:
        self.lines.append(line)
        return True


@given(st.lists(st.integers(1, 512), max_size=60), st.lists(st.floats(0, 5), max_size=40))
def test_no_stretch_of_time_gets_more_than_the_bucket_holds(
    sizes: list[int], steps: list[float]
) -> None:
    clock = Seconds()
    bucket, prices = TokenBucket(clock), [cost(size) for size in sizes]
    sent: list[tuple[float, float]] = []
    for step in [0.0, *steps]:
        clock.now += step
        while prices and bucket.take(prices[0]) == 0:
            sent.append((clock.now, prices.pop(0)))
    for index, (start, _) in enumerate(sent):
        for end, _ in sent[index:]:
            spent = sum(price for at, price in sent if start <= at <= end)
            assert spent <= BURST + RATE * (end - start) + 1e-6


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40))
def test_who_waits_as_told_may_send(sizes: list[int]) -> None:
    clock = Seconds()
    bucket = TokenBucket(clock)
    for size in sizes:
        if delay := bucket.take(cost(size)):
            clock.now += delay + 1e-9
            assert bucket.take(cost(size)) == 0


async def test_lines_go_out_in_order_as_the_bucket_fills() -> None:
    wire = Wire(rate=1000)
    sent = [wire.queue.send(f"line {number}") for number in range(30)]
    assert await asyncio.gather(*sent) == [True] * 30
    assert wire.lines == [f"line {number}" for number in range(30)]


async def test_what_only_we_want_to_know_lets_answers_go_first() -> None:
    wire = Wire(rate=20)
    for number in range(20):
        wire.queue.send(f"WHO {number}", idle=True)
    burst = [f"WHO {number}" for number in range(5)]
    assert wire.lines == burst
    await wire.queue.send("an answer")
    assert wire.lines[:6] == [*burst, "an answer"]
    wire.queue.close()


async def test_people_take_turns_and_the_lines_of_an_answer_stay_together() -> None:
    wire = Wire(rate=50)
    turns = [object() for _ in range(6)]
    sent = [
        wire.queue.send(f"mallory {number}", sender="mallory", turn=turn)
        for number, turn in enumerate(turns)
        for _ in range(3)
    ]
    answer = object()
    sent += [wire.queue.send(f"alice {line}", sender="alice", turn=answer) for line in range(2)]
    sent += [wire.queue.send("bob", sender="bob")]
    await asyncio.gather(*sent)
    first = wire.lines.index("alice 0")
    assert first <= 9, "they wait for the turn that has begun, and not for the others"
    assert wire.lines[first : first + 3] == ["alice 0", "alice 1", "bob"]
    others = [line for line in wire.lines if line.startswith("mallory")]
    assert others == [f"mallory {number}" for number in range(6) for _ in range(3)]
    assert wire.lines[first - 1] != wire.lines[first + 3], "no turn is interrupted"


async def test_a_pong_waits_for_nothing_and_long_lines_longer_than_short_ones() -> None:
    for size, at_once in ((40, 5), (508, 2)):
        wire = Wire()
        for _ in range(20):
            wire.queue.send("x" * size)
        assert len(wire.lines) == at_once
        assert await wire.queue.send("PONG", urgent=True)
        assert wire.lines[at_once:] == ["PONG"]
        wire.queue.close()


async def test_what_is_withdrawn_or_left_at_the_end_is_not_sent_and_costs_nothing() -> None:
    wire = Wire()
    sent = [wire.queue.send(f"line {number}") for number in range(8)]
    sent[5].cancel()
    wire.queue.close()
    late = wire.queue.send("too late", urgent=True)
    results = await asyncio.gather(*sent[:5], *sent[6:], late)
    assert results == [True] * 5 + [False] * 3
    assert len(wire.lines) == 5


async def test_a_line_counts_as_written_before_its_answer_can_be_read() -> None:
    wire, written = Wire(), list[str]()
    for line in map(str, range(int(BURST) + 2)):
        sent = wire.queue.send(line, written=functools.partial(written.append, line))
    # The loop has not run since: what waits for a result has not learned of it.
    assert written == wire.lines == [str(number) for number in range(int(BURST))]
    sent.cancel()
    wire.queue.close()
    assert written == wire.lines
