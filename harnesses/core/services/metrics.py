"""The numbers that a tendril has of itself, for Prometheus at `/metrics` of the agent server."""

from __future__ import annotations

import re

MOST = 50
"""Names of one tendril."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class TendrilMetrics:
    """The counters and gauges of one tendril, by names of its own; they go with its heartbeat.

    `/metrics` needs no key: a name or a number must tell nothing that is private.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Add an amount to a counter, which begins with 0 at each start. Raises ValueError for
        what cannot be a name, for one too many, and for a negative amount."""
        if amount < 0:
            raise ValueError(f"the counter {name} only grows; use set for a number that falls")
        self._check(name, self.counters)
        self.counters[name] = self.counters.get(name, 0) + amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises ValueError for what cannot be a name, and for one too many."""
        self._check(name, self.gauges)
        self.gauges[name] = value

    def _check(self, name: str, known: dict[str, float]) -> None:
        if name in known:
            return
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a metric: small letters, digits and _")
        if len(known) >= MOST:
            raise ValueError(f"a tendril has at most {MOST} counters and as many gauges")
