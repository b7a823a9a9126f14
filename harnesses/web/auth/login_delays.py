"""Growing delays for addresses from which wrong tokens come to the login page."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE = 5
"""Wrong tokens that cost no time: people mistype."""

LONGEST = 300.0
"""Seconds of the longest delay; the first has one, and each is twice as long as the one before."""

_FORGOTTEN = 3600.0  # seconds after the last wrong token
_KEPT = 10_000  # addresses


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0

    @property
    def pause(self) -> float:
        """The seconds from the last wrong token to the next that is looked at."""
        return min(LONGEST, 2.0 ** (self.count - FREE)) if self.count >= FREE else 0.0


class LoginDelays:
    """The wrong tokens of each address. `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until a token from this address is looked at again; 0 is now."""
        failures = self._failures.get(address)
        if failures is None:
            return 0.0
        passed = self._clock() - failures.last
        if passed > _FORGOTTEN:
            del self._failures[address]
        return max(0.0, failures.pause - passed)

    def failed(self, address: str) -> None:
        """Count a wrong token."""
        failures = self._failures.setdefault(address, _Failures())
        self._failures.move_to_end(address)
        failures.count, failures.last = failures.count + 1, self._clock()
        if len(self._failures) > _KEPT:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        """Forget the wrong tokens of an address that has sent a right one."""
        self._failures.pop(address, None)
