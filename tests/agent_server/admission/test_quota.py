"""Quotas, with a clock set by hand."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.errors import RateLimited
from agent_server.metering.accounts import DAY, MINUTE, Quotas, RateWindow
from storage.usage.api_keys import Key
from terrarium.clock import SteadyClock

NOON = 20_000 * DAY + DAY / 2


def refusal(quotas: Quotas, key: Key, now: float, tokens: int = 10) -> int:
    """The seconds that a refused request is told to wait."""
    with pytest.raises(RateLimited) as caught:
        quotas.charge(key, tokens, now)
    assert caught.value.code == "quota_exceeded"
    return int(caught.value.headers["retry-after"])


def test_requests_over_the_quota_are_let_in_after_the_wait_that_was_told() -> None:
    quotas, key = Quotas(), Key("irc", requests_per_minute=2)
    quotas.charge(key, 10, NOON)
    quotas.charge(key, 10, NOON + 20)
    wait = refusal(quotas, key, NOON + 30)
    assert wait == 31
    quotas.charge(key, 10, NOON + 30, is_admitted=True)  # a part of an answer is no request
    quotas.charge(Key("web", requests_per_minute=1), 10, NOON + 30)  # each key has its own quota
    refusal(quotas, key, NOON + 30 + wait - 2)
    quotas.charge(key, 10, NOON + 30 + wait)


def test_tokens_count_as_estimated_until_they_are_known() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_minute=1000)
    quotas.charge(key, 1000, NOON)
    refusal(quotas, key, NOON + 1)
    quotas.correct("irc", NOON, -100)
    quotas.charge(key, 100, NOON + 2)
    refusal(quotas, key, NOON + 3)


def test_a_quota_for_a_day_frees_at_midnight_utc() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_day=1000)
    quotas.seed("irc", 1000, NOON)
    assert refusal(quotas, key, NOON) == DAY / 2
    quotas.charge(key, 10, NOON + DAY / 2)


def test_what_ends_after_midnight_does_not_count_for_the_new_day() -> None:
    quotas, key = Quotas(), Key("irc", tokens_per_day=100)
    late = NOON + DAY / 2 - 1
    quotas.charge(key, 10, late)
    quotas.charge(key, 10, NOON + DAY / 2 + 1)
    quotas.correct("irc", late, 9_990)
    quotas.charge(key, 10, NOON + DAY / 2 + 2)


@given(
    steps=st.lists(st.tuples(st.floats(0, 40), st.integers(1, 50)), min_size=1, max_size=60),
    limit=st.integers(1, 200),
)
def test_a_window_never_lets_more_than_its_limit_and_one_more_into_a_minute(
    steps: list[tuple[float, int]], limit: int
) -> None:
    window, now = RateWindow(), 1_000_000.0
    taken: list[tuple[float, int]] = []
    for pause, amount in steps:
        now += pause
        wait = window.retry_after(now, limit)
        assert 0 <= wait <= MINUTE + 1
        if wait:
            assert deepcopy(window).retry_after(now + wait + 0.001, limit) == 0
            continue
        before = sum(used for time, used in taken if time > now - MINUTE)
        assert before < limit
        window.add(now, amount)
        taken.append((now, amount))


@pytest.mark.parametrize("jump", [-DAY, 365 * DAY])
def test_a_clock_that_jumps_does_not_lock_a_key(jump: float) -> None:
    time_of_day, uptime = [NOON], [0.0]
    clock = SteadyClock(lambda: time_of_day[0], lambda: uptime[0])
    quotas, key = Quotas(), Key("irc", requests_per_minute=1, tokens_per_minute=100)
    quotas.charge(key, 100, clock.time())
    time_of_day[0] += jump
    uptime[0] += 30
    assert 0 < refusal(quotas, key, clock.time()) <= 32
    uptime[0] += 32
    quotas.charge(key, 100, clock.time())
