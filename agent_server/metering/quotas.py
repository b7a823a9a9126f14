"""The quotas of keys.

Times are seconds since 1970 of a `SteadyClock`: a time of day that is put back would fill windows
for as long. A quota is full when as much as its limit has been used, so the last request that is
let in may go over it: the cost of an answer is known only when it ends. All tokens of an answer
count for the time when it was let in.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from agent_server.errors import RateLimited
from storage.usage.api_keys import Key

MINUTE, DAY = 60, 86_400


class RateWindow:
    """A sliding window over the last minute, with a resolution of a second."""

    def __init__(self) -> None:
        self._total = 0
        self._seconds: deque[list[int]] = deque()

    def add(self, now: float, amount: int) -> None:
        """Count `amount` as used now."""
        second = math.floor(now)
        self._total += amount
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += amount
        else:
            self._seconds.append([second, amount])

    def correct(self, then: float, amount: int) -> None:
        """Count `amount` more (or less) as used `then`, unless that is over a minute ago."""
        second = math.floor(then)
        # A request that began over a minute ago has left the window, and needs no correction.
        for entry in reversed(self._seconds):
            if entry[0] == second:
                entry[1] += amount
                self._total += amount

    def retry_after(self, now: float, limit: int) -> float:
        """Return the seconds until less than `limit` has been used within a minute."""
        while self._seconds and self._seconds[0][0] + 1 + MINUTE <= now:
            self._total -= self._seconds.popleft()[1]
        left = self._total
        if left < limit:
            return 0.0
        for second, amount in self._seconds:
            left -= amount
            if left < limit:
                return second + 1 + MINUTE - now
        return 0.0


@dataclass(slots=True)
class _Used:
    """The usage of one key; the day is a UTC day, as in the usage table."""

    requests: RateWindow = field(default_factory=RateWindow)
    tokens: RateWindow = field(default_factory=RateWindow)
    day: int = 0
    today: int = 0


@dataclass(frozen=True, slots=True)
class Charge:
    """An estimate that was charged, to be reconciled later."""

    key: str
    time: float
    tokens: int


class Quotas:
    """The usage of all keys against their quotas."""

    def __init__(self) -> None:
        self._used: dict[str, _Used] = {}

    def seed(self, key: str, tokens: int, now: float) -> None:
        """Count `tokens` that `key` has used today before a restart."""
        used = self._used.setdefault(key, _Used())
        used.day, used.today = int(now // DAY), tokens

    def charge(self, key: Key, tokens: int, now: float, *, again: bool = False) -> Charge | None:
        """Charge a request of about `tokens`. Raises RateLimited while a quota is full.

        With `again` it is a further part of a request that was let in. Returns None for a key
        without quotas.
        """
        if not key.has_quotas:
            return None
        used = self._used.setdefault(key.name, _Used())
        if used.day != int(now // DAY):
            used.day, used.today = int(now // DAY), 0
        if not again:
            _require_room(key, used, now)
            used.requests.add(now, 1)
        used.tokens.add(now, tokens)
        used.today += tokens
        return Charge(key.name, now, tokens)

    def reconcile(self, charge: Charge, tokens: int) -> None:
        """Correct a charge to the `tokens` that its request has used."""
        day, more = int(charge.time // DAY), tokens - charge.tokens
        # Another process may have made the charge: then its key may be unknown here.
        used = self._used.setdefault(charge.key, _Used(day=day))
        used.tokens.correct(charge.time, more)
        if used.day == day:
            used.today += more


def _require_room(key: Key, used: _Used, now: float) -> None:
    if limit := key.requests_per_minute:
        _require(used.requests.retry_after(now, limit), f"{limit} requests per minute")
    if limit := key.tokens_per_minute:
        _require(used.tokens.retry_after(now, limit), f"{limit} tokens per minute")
    if (limit := key.tokens_per_day) and used.today >= limit:
        _require(DAY - now % DAY, f"{limit} tokens per day")


def _require(seconds: float, quota: str) -> None:
    if seconds > 0:
        wait = math.ceil(seconds)
        raise RateLimited(
            f"this key's quota of {quota} is used up; try again in {wait} s",
            code="quota_exceeded",
            headers={"retry-after": str(wait)},
        )
