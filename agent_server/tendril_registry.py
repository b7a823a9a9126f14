"""An in-memory registry of the tendrils that have reported recently."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
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

    `seen` is the time of the report, in seconds of the registry's clock.
    """

    name: str
    key: str
    report: TendrilReport
    seen: float


@dataclass(slots=True, eq=False)
class TendrilRegistry(Collector):
    """The latest reports, by key and name, and a Prometheus collector of their metrics.

    As the key is part of the index, no key can report for another key's tendril.
    """

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], RegisteredTendril] = field(default_factory=dict)

    def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Store a report; return False if the key already has `MAX_TENDRILS` other tendrils."""
        self._drop_expired()
        names = {known for owner, known in self._known if owner == key}
        if len(names) >= MAX_TENDRILS and name not in names:
            return False
        self._known[key, name] = RegisteredTendril(name, key, report, self.clock())
        return True

    def present(self) -> list[RegisteredTendril]:
        """Return the tendrils that have not expired, ordered by name, then key."""
        self._drop_expired()
        return sorted(self._known.values(), key=lambda each: (each.name, each.key))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the tendrils that have not expired, for Prometheus."""
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
        for each in self.present():
            own = [each.key, each.name]
            pending.add_metric(own, each.report.pending)
            disk.add_metric(own, each.report.disk_trouble)
            for name, value in each.report.gauges.items():
                gauges.add_metric([*own, name], value)
            for name, value in each.report.counters.items():
                counters.add_metric([*own, name], value)
        yield from (pending, disk, gauges, counters)

    def age(self, tendril: RegisteredTendril) -> float:
        """Return the seconds since the last report of a tendril."""
        return self.clock() - tendril.seen

    def _drop_expired(self) -> None:
        now = self.clock()
        gone = [key for key, each in self._known.items() if now - each.seen > REPORT_TIMEOUT]
        for key in gone:
            del self._known[key]
