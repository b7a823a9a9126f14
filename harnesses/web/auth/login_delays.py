"""Growing delays for addresses from which wrong tokens come, in whatever way."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from storage.chat_log.event import Scope

FREE = 5
"""Wrong tokens that cost no time: people mistype."""

LONGEST = 300.0
"""Seconds of the longest delay; the first has one, and each is twice as long as the one before."""

_FORGOTTEN = 3600.0  # seconds after the last wrong token
_KEPT = 10_000  # addresses
_SAME = 8  # wrong tokens of an address that are known again


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    tried: deque[bytes] = field(default_factory=lambda: deque(maxlen=_SAME))

    @property
    def pause(self) -> float:
        """The seconds from the last wrong token to the next that is looked at."""
        return min(LONGEST, 2.0 ** (self.count - FREE)) if self.count >= FREE else 0.0


class LoginDelays:
    """The wrong tokens of each address. `clock` returns seconds and never goes back.

    A token that was wrong before is no further guess: a program that goes on with a token that has
    ended locks out nobody who shares its address.
    """

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

    def note(self, address: str, token: str, opened: Scope | None) -> None:
        """Count a wrong token, one that has `opened` nothing; after one that opens everything
        nothing is left to guess, so the address is forgiven."""
        if opened is None:
            self._failed(address, token)
        elif opened.places is None:
            self._failures.pop(address, None)

    def _failed(self, address: str, token: str) -> None:
        failures = self._failures.setdefault(address, _Failures())
        self._failures.move_to_end(address)
        tried = sha256(token.encode()).digest()
        if tried in failures.tried:
            return
        failures.tried.append(tried)
        failures.count, failures.last = failures.count + 1, self._clock()
        if len(self._failures) > _KEPT:
            self._failures.popitem(last=False)
