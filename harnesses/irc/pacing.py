"""How fast lines may go out: a token bucket, so that a server does not cut us off for flooding."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

BURST = 5.0
"""Tokens of a full bucket."""

RATE = 1.0
"""Tokens that come back in a second."""

FREE_BYTES = 100
"""Bytes of a line that cost no more than the line itself."""

BYTES_A_TOKEN = 300


def cost(size: int) -> float:
    """Tokens that a line of `size` bytes costs: servers count lines and bytes both."""
    return 1.0 + max(0, size - FREE_BYTES) / BYTES_A_TOKEN


class Pacing(Generic[T]):
    """A queue of items that gives each out when its tokens are there.

    Urgent items (registration, PONG, QUIT: what the protocol wants, never what people make us
    say) overtake the others and cost nothing; idle ones (what only we want to know) let them all
    go first. `clock` returns seconds and never goes back.
    """

    def __init__(
        self, clock: Callable[[], float], burst: float = BURST, rate: float = RATE
    ) -> None:
        self._clock, self._burst, self._rate = clock, burst, rate
        self._tokens, self._filled = burst, clock()
        self._urgent: deque[T] = deque()
        self._waiting: deque[tuple[float, T]] = deque()
        self._idle: deque[tuple[float, T]] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._waiting) + len(self._idle)

    def put(self, item: T, size: int, urgent: bool = False, idle: bool = False) -> None:
        """Add an item that takes `size` bytes on the wire."""
        if urgent:
            self._urgent.append(item)
        else:  # no line may cost more than a full bucket, or it would wait for ever
            queue = self._idle if idle else self._waiting
            queue.append((min(cost(size), self._burst), item))

    def take(self) -> T | None:
        """The next item that may go now, or None."""
        if self._urgent:
            return self._urgent.popleft()
        self._fill()
        queue = self._waiting or self._idle
        if not queue or self._tokens < queue[0][0]:
            return None
        price, item = queue.popleft()
        self._tokens -= price
        return item

    def delay(self) -> float | None:
        """Seconds until `take` has an item; None when nothing waits."""
        if self._urgent:
            return 0.0
        self._fill()
        queue = self._waiting or self._idle
        return max(0.0, (queue[0][0] - self._tokens) / self._rate) if queue else None

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop what is waiting and no longer wanted, before it costs anything."""
        self._waiting = deque(entry for entry in self._waiting if wanted(entry[1]))
        self._idle = deque(entry for entry in self._idle if wanted(entry[1]))

    def clear(self) -> list[T]:
        """Empty the queue; return what had not gone out."""
        items = [*self._urgent, *(item for _, item in (*self._waiting, *self._idle))]
        for queue in (self._urgent, self._waiting, self._idle):
            queue.clear()
        return items

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
