"""Exponential delays for client addresses that send wrong tokens, however they are sent."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from starlette.requests import Request

from harnesses.web.auth.tokens import Viewer
from terrarium.config import GOOD_SECRET_LENGTH

THRESHOLD = 5
"""The number of wrong tokens at which delays begin: people mistype."""

MAX_DELAY = 300.0
"""The longest delay in seconds; the first is one second, and each doubles the one before."""

_FORGET_AFTER = 3600.0  # seconds after the last wrong token
_MAX_ADDRESSES = 10_000  # bounds memory; the one longest without a wrong token is evicted
_MAX_REPEATS = 8  # the most recent wrong tokens of an address, which count only once


def address_of(request: Request) -> str:
    """Return the client's IPv4 address or IPv6 /64 network, the key of delays and rate limits."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    # One visitor usually has a whole /64, and could evade limits by single address.
    return str(ipaddress.ip_network((int(address), 64), strict=False))


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    tried: deque[bytes] = field(default_factory=lambda: deque(maxlen=_MAX_REPEATS))


class LoginDelays:
    """The wrong tokens of each address, and the resulting delays. `clock` returns monotonic
    seconds.

    A repeated wrong token does not count again, so a program that keeps sending a revoked one does
    not lock out others behind the same address.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait(self, address: str) -> float:
        """Return the seconds until a token from this address may be checked; 0 means now."""
        failures = self._failures.get(address)
        if failures is None:
            return 0.0
        passed = self._clock() - failures.last
        if passed > _FORGET_AFTER:
            del self._failures[address]
        if failures.count < THRESHOLD:
            return 0.0
        # The exponent is bounded, because a float ends at 2**1024.
        delay = min(MAX_DELAY, 2.0 ** min(failures.count - THRESHOLD, 10))
        return max(0.0, delay - passed)

    def check(self, address: str, token: str, holder: Viewer | None) -> float:
        """Return the seconds until a token counts, 0 for now; `holder` is who has it, None for a
        wrong one, which is counted.

        During a delay a right token counts only if it is too long to be guessed: others at the same
        address, behind a NAT or a proxy, lock nobody out who has one.
        """
        if wait := self.wait(address):
            is_guessed = holder is None or len(token) < GOOD_SECRET_LENGTH
            return wait if is_guessed else 0.0
        if holder is not None:
            # The token with full access resets the address. A restricted token does not, or whoever
            # has one could guess at the full one and reset the count in between.
            if holder.has_full_access:
                self._failures.pop(address, None)
            return 0.0
        failures = self._failures.setdefault(address, _Failures())
        self._failures.move_to_end(address)
        tried = sha256(token.encode()).digest()  # short, and discloses no mistyped token
        if tried not in failures.tried:
            failures.tried.append(tried)
            failures.count, failures.last = failures.count + 1, self._clock()
            if len(self._failures) > _MAX_ADDRESSES:
                self._failures.popitem(last=False)
        return 0.0
