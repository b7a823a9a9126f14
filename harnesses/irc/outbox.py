"""Lines on their way to one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harnesses.irc.pacing import RATE, Pacing

Sent = asyncio.Future[bool]
"""Done when a line is written (True) or never will be (False)."""


class Outbox:
    """Writes lines as fast as `Pacing` allows, `rate` a second, while its connection is open."""

    def __init__(self, write: Callable[[str], None], rate: float = RATE) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._pacing: Pacing[tuple[str, Sent]] = Pacing(self._loop.time, rate=rate)
        self._timers: set[asyncio.TimerHandle] = set()
        self._next: asyncio.TimerHandle | None = None
        self._is_open = False

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
            self._pacing.put((line, sent), size, urgent, idle)
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
        self._pacing.keep(lambda entry: not entry[1].done())
        while entry := self._pacing.take():
            line, sent = entry
            self._write(line)
            sent.set_result(True)
        if self._next:
            self._next.cancel()
        delay = self._pacing.delay()
        self._next = None if delay is None else self._loop.call_later(delay, self._pump)
