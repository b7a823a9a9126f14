"""Rate limits, so that no person or channel crowds out the others.

Each key, such as a person or a channel, has a token bucket. Optionally a refused request costs a
token as well, down to a limit: somebody who floods must then be quiet for a while first, and gets
no answers while the flood goes on.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MAX_OPEN_QUESTIONS = 5
"""The maximum number of questions of one person that are being answered or queued."""

RATE_LIMITED = "Slow down, please: I will answer you again after a short pause."
TOO_MANY = (
    f"I am still working on {MAX_OPEN_QUESTIONS} of your questions, so I have not taken this one:"
    " ask it again later, or stop them."
)

_BURST_SECONDS = 10.0  # worth of tokens in a full bucket
_NOTIFY_INTERVAL = 60.0  # seconds between notifications of the same person or channel
_MAX_BUCKETS = 2_000  # the least recently used, which is evicted, has usually filled up again


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float
    notified: float = -math.inf


class TokenBuckets:
    """Token buckets by key: each gains `rate` tokens per second and holds those of ten seconds.

    With `refusals_cost` a refused request costs a token too, and the balance may become negative.
    `clock` returns seconds and must be monotonic.
    """

    def __init__(self, rate: float, clock: Callable[[], float], *, refusals_cost: bool) -> None:
        self._clock = clock
        self._refusals_cost = refusals_cost
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Change the tokens per second; the balances stay, as far as the buckets hold them."""
        self._rate, self._capacity = rate, max(1.0, rate * _BURST_SECONDS)
        for bucket in self._buckets.values():
            bucket.tokens = max(bucket.tokens, -self._capacity)

    def try_acquire(self, key: Hashable) -> bool:
        """Take a token from the bucket of `key`; return False if there was none."""
        bucket = self._refill(key)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return True
        if self._refusals_cost:
            # Bounded, so that the quiet time needed does not grow with the length of the flood.
            bucket.tokens = max(bucket.tokens - 1, -self._capacity)
        return False

    def should_notify(self, key: Hashable) -> bool:
        """Return True if a refusal should be announced, at most once a minute per key."""
        bucket = self._refill(key)
        if bucket.filled - bucket.notified < _NOTIFY_INTERVAL:
            return False
        bucket.notified = bucket.filled
        return True

    def _refill(self, key: Hashable) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(self._capacity, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(self._capacity, bucket.tokens + (now - bucket.filled) * self._rate)
        bucket.filled = now
        return bucket


class ConcurrencyLimit:
    """A limit of `MAX_OPEN_QUESTIONS` per person: those being answered or queued."""

    def __init__(self) -> None:
        self._waiting: Counter[Hashable] = Counter()

    def is_full(self, person: Hashable) -> bool:
        """Return True if a person has the maximum number of open questions."""
        return self._waiting[person] >= MAX_OPEN_QUESTIONS

    @contextmanager
    def hold(self, person: Hashable) -> Iterator[None]:
        """Count a question of a person as open until the block ends."""
        self._waiting[person] += 1
        try:
            yield
        finally:
            self._waiting[person] -= 1
            if not self._waiting[person]:
                del self._waiting[person]
