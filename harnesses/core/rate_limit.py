"""Rate limits, so that nobody crowds out the others.

Everybody has a token bucket, and so has every channel. What one person is refused costs a token
too: who floods is heard again after being quiet for a while, not while the flood goes on.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WAITING = 5
"""Questions of one person that are being answered or wait for it."""

_BURST = 10.0  # seconds' worth of tokens in a full bucket
_TOLD_EVERY = 60.0  # seconds
_KEPT = 2_000  # buckets; an older one is full again anyway


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    told: float = -math.inf


class TokenBuckets:
    """A token bucket each: `rate` tokens a second, ten seconds' worth when full.

    `clock` returns seconds and never goes back.
    """

    def __init__(self, rate: float, clock: Callable[[], float], *, refusals_cost: bool) -> None:
        self._rate, self._clock, self._most = rate, clock, max(1.0, rate * _BURST)
        self._refusals_cost = refusals_cost
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def try_acquire(self, key: Hashable) -> bool:
        """Take a token of this bucket; whether there was one."""
        bucket = self._refill(key)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return True
        if self._refusals_cost:
            bucket.tokens = max(bucket.tokens - 1, -self._most)
        return False

    def should_notify(self, key: Hashable) -> bool:
        """Return whether to tell of a refusal: once a minute."""
        bucket = self._refill(key)
        if bucket.filled - bucket.told < _TOLD_EVERY:
            return False
        bucket.told = bucket.filled
        return True

    def _refill(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._most, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.filled) * self._rate)
        bucket.filled = now
        return bucket


class ConcurrencyLimit:
    """The people whose questions are being answered or wait for it."""

    def __init__(self) -> None:
        self._waiting: Counter[Hashable] = Counter()
        self._told: set[tuple[Hashable, str]] = set()

    def is_full(self, person: Hashable) -> bool:
        """Return whether a person has asked as much as one may at once."""
        return self._waiting[person] >= WAITING

    @contextmanager
    def hold(self, person: Hashable) -> Iterator[None]:
        """Count a question while it is being answered."""
        self._waiting[person] += 1
        try:
            yield
        finally:
            self._waiting[person] -= 1
            if not self._waiting[person]:
                del self._waiting[person]
                self._told = {entry for entry in self._told if entry[0] != person}

    def notify_once(self, person: Hashable, text: str) -> bool:
        """Return whether to tell a person `text`: once, while they have questions open."""
        first = (person, text) not in self._told
        self._told.add((person, text))
        return first
