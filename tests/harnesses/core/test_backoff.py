"""How long to wait before trying again."""

from __future__ import annotations

from terrarium.clock import Backoff


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_waits_double_up_to_the_longest_with_jitter_or_longer_if_asked() -> None:
    backoff = Backoff(0.5, 30)
    assert [backoff.delay() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    backoff = Backoff(4, 6, jitter=lambda: 1.0)
    assert [backoff.delay(), backoff.delay()] == [5, 6]
    assert Backoff(1, 30).delay(at_least=10) == 10


def test_what_ran_long_enough_begins_anew_and_what_did_not_goes_on() -> None:
    clock = Clock()
    backoff = Backoff(1, 30, stable=60, clock=clock)
    assert [backoff.delay(), backoff.delay()] == [1, 2]
    backoff.mark_started()
    clock.now += 59
    assert backoff.delay() == 4
    backoff.mark_started()
    clock.now += 60
    assert backoff.delay() == 1


def test_time_that_passes_while_nothing_runs_does_not_count_as_sound() -> None:
    clock = Clock()
    backoff = Backoff(1, 30, stable=60, clock=clock)
    backoff.mark_started()
    backoff.delay()
    clock.now += 600
    assert backoff.delay() == 2
