"""Registry, in memory, of the tendrils that have reported recently, and their metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

REPORT_TIMEOUT = 30.0
"""Seconds without a report after which a tendril is dropped."""

MAX_TENDRILS = 100
"""Maximum number of tendrils per key; reports of further ones are refused."""


@dataclass(frozen=True, slots=True)
class TendrilReport:
    """A status report of a tendril.

    `state` is "ready", "waiting" and so on; `tools` are those offered to its model; `pending`
    counts the questions being answered or waiting; `tokens_today` is for the UTC day; `counters`
    and `gauges` are its own metrics; `disk_trouble` is True while it cannot write to its disk.
    """

    state: str
    tools: tuple[str, ...] = ()
    pending: int = 0
    tokens_today: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    disk_trouble: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredTendril:
    """The latest report of the tendril `name`, sent with the API key named `key`.

    `age` is the number of seconds since that report.
    """

    name: str
    key: str
    report: TendrilReport
    age: float


@dataclass(slots=True)
class TendrilRegistry:
    """The latest reports, by key and name.

    As the key is part of the index, no key can report for another key's tendril. The reports are
    stored with the time of `clock` at which they arrived.
    """

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], tuple[TendrilReport, float]] = field(default_factory=dict)

    async def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Store a report; return False if the key already has `MAX_TENDRILS` other tendrils."""
        self._drop_expired()
        names = {known for owner, known in self._known if owner == key}
        if len(names) >= MAX_TENDRILS and name not in names:
            return False
        self._known[key, name] = report, self.clock()
        return True

    async def present(self) -> Sequence[RegisteredTendril]:
        """Return the tendrils that have not expired, ordered by name, then key."""
        self._drop_expired()
        now = self.clock()
        found = [
            RegisteredTendril(name, key, report, now - seen)
            for (key, name), (report, seen) in self._known.items()
        ]
        return sorted(found, key=lambda each: (each.name, each.key))

    def _drop_expired(self) -> None:
        now = self.clock()
        gone = [key for key, (_, seen) in self._known.items() if now - seen > REPORT_TIMEOUT]
        for key in gone:
            del self._known[key]


@dataclass(frozen=True, slots=True, eq=False)
class TendrilCollector(Collector):
    """A Prometheus collector of what these tendrils have reported."""

    tendrils: Sequence[RegisteredTendril]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the tendrils."""
        whose = ["key", "tendril"]
        pending = GaugeMetricFamily(
            "terrarium_tendril_pending", "Questions that are answered or wait", labels=whose
        )
        disk = GaugeMetricFamily(
            "terrarium_tendril_disk_trouble", "1 while it can write nothing", labels=whose
        )
        gauges = GaugeMetricFamily(
            "terrarium_tendril_gauge", "Gauges of its own", labels=[*whose, "name"]
        )
        counters = CounterMetricFamily(
            "terrarium_tendril_counter", "Counters of its own", labels=[*whose, "name"]
        )
        for each in self.tendrils:
            own = [each.key, each.name]
            pending.add_metric(own, each.report.pending)
            disk.add_metric(own, each.report.disk_trouble)
            for name, value in each.report.gauges.items():
                gauges.add_metric([*own, name], value)
            for name, value in each.report.counters.items():
                counters.add_metric([*own, name], value)
        yield from (pending, disk, gauges, counters)
