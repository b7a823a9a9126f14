"""Metrics of a tendril, exposed for Prometheus at `/metrics` of the agent server."""

from __future__ import annotations

import re

MAX_METRICS = 50
"""The most counters of one tendril, and the most gauges."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class TendrilMetrics:
    """The counters and gauges that a tendril defines, sent with its heartbeats.

    `/metrics` needs no key, so neither a name nor a value may reveal anything private.
    """

    def __init__(self) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Add a non-negative amount to a counter, which starts at 0 in each process.

        Raises ValueError for an invalid name, too many names, or a negative amount.
        """
        if amount < 0:
            raise ValueError(f"the counter {name} only grows; use set for a number that falls")
        self._check(name, self.counters)
        self.counters[name] = self.counters.get(name, 0) + amount

    def set(self, name: str, value: float) -> None:
        """Set a gauge. Raises ValueError for an invalid name or too many names."""
        self._check(name, self.gauges)
        self.gauges[name] = value

    def _check(self, name: str, known: dict[str, float]) -> None:
        if name in known:
            return
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a metric: small letters, digits and _")
        if len(known) >= MAX_METRICS:
            raise ValueError(f"a tendril has at most {MAX_METRICS} counters and as many gauges")
