"""The send queue of one connection, paced by a token bucket.

Servers disconnect clients that send too fast ("excess flood").
"""

from __future__ import annotations

import asyncio
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
    """Return the tokens that a line of `size` bytes costs: servers count lines and bytes both."""
    return 1.0 + max(0, size - FREE_BYTES) / BYTES_A_TOKEN


class TokenBucketQueue(Generic[T]):
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

    def push(self, item: T, size: int, urgent: bool = False, idle: bool = False) -> None:
        """Add an item that takes `size` bytes on the wire."""
        if urgent:
            self._urgent.append(item)
        else:  # no line may cost more than a full bucket, or it would never go out
            queue = self._idle if idle else self._waiting
            queue.append((min(cost(size), self._burst), item))

    def pop(self) -> T | None:
        """Return the next item that may go now, or None."""
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
        """Return the seconds until `pop` has an item; None when nothing waits."""
        if self._urgent:
            return 0.0
        self._fill()
        queue = self._waiting or self._idle
        return max(0.0, (queue[0][0] - self._tokens) / self._rate) if queue else None

    def discard_unwanted(self, wanted: Callable[[T], bool]) -> None:
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


Sent = asyncio.Future[bool]
"""Done when a line is written (True) or never will be (False)."""


class SendQueue:
    """Writes lines as fast as `TokenBucketQueue` allows, `rate` a second, while its connection is
    open."""

    def __init__(self, write: Callable[[str], None], rate: float = RATE) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._pacing: TokenBucketQueue[tuple[str, Sent]] = TokenBucketQueue(
            self._loop.time, rate=rate
        )
        self._timers: set[asyncio.TimerHandle] = set()
        self._next: asyncio.TimerHandle | None = None
        self._is_open = False
        self.may_write: Callable[[str], bool] | None = None
        """Decides, when a line's turn has come, whether it is written at all."""

    def open(self) -> None:
        """The connection stands; what was sent before is lost."""
        self._is_open = True

    def send(self, line: str, urgent: bool = False, idle: bool = False) -> Sent:
        """Write `line` as soon as it may go; cancel the result to take it back."""
        sent: Sent = self._loop.create_future()
        if not self._is_open:
            sent.set_result(False)
        else:
            size = len(line.encode("utf-8", "replace")) + 2
            self._pacing.push((line, sent), size, urgent, idle)
            self._pump()
        return sent

    def later(
        self,
        delay: float,
        line: str,
        urgent: bool = False,
        unless: Callable[[], bool] | None = None,
    ) -> None:
        """Send `line` in `delay` seconds, if the connection is still there then, and unless
        `unless` says that it is needless."""

        def due() -> None:
            self._timers.discard(timer)
            if not (unless and unless()):
                self.send(line, urgent)

        timer = self._loop.call_later(delay, due)
        self._timers.add(timer)

    def close(self) -> None:
        """Give up what has not been written."""
        self._is_open = False
        for timer in (*self._timers, self._next):
            if timer:
                timer.cancel()
        self._timers.clear()
        for _, sent in self._pacing.clear():
            if not sent.done():
                sent.set_result(False)

    def _pump(self) -> None:
        self._pacing.discard_unwanted(lambda entry: not entry[1].done())
        while entry := self._pacing.pop():
            line, sent = entry
            is_written = self.may_write is None or self.may_write(line)
            if is_written:
                self._write(line)
            sent.set_result(is_written)
        if self._next:
            self._next.cancel()
        delay = self._pacing.delay()
        self._next = None if delay is None else self._loop.call_later(delay, self._pump)
