"""The tendrils that have reported themselves lately, in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

EXPIRES = 30.0
"""Seconds after which a tendril that has not reported itself again is gone."""

MOST = 100
"""Tendrils of one key; a report of one more is refused."""


@dataclass(frozen=True, slots=True)
class TendrilReport:
    """The report of a tendril: its `state` ("ready", "waiting", ...), the tools of its model, how
    many questions it is answering or has waiting, the tokens it has used today (UTC), its own
    counters and gauges, and whether it can write nothing at the moment."""

    state: str
    tools: tuple[str, ...] = ()
    pending: int = 0
    tokens_today: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    disk_trouble: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredTendril:
    """A tendril by its `name` and the name of the key that reported it; `seen` is in seconds of
    the registry's clock."""

    name: str
    key: str
    report: TendrilReport
    seen: float


@dataclass(slots=True, eq=False)
class TendrilRegistry(Collector):
    """The tendrils by key and name, so that no key can speak for another one's tendril."""

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], RegisteredTendril] = field(default_factory=dict)

    def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Take in a report; return False when the key has too many tendrils already."""
        self._drop_expired()
        names = {known for owner, known in self._known if owner == key}
        if len(names) >= MOST and name not in names:
            return False
        self._known[key, name] = RegisteredTendril(name, key, report, self.clock())
        return True

    def present(self) -> list[RegisteredTendril]:
        """Return the tendrils that are there, by name."""
        self._drop_expired()
        return sorted(self._known.values(), key=lambda each: (each.name, each.key))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the tendrils that are there, as a collector of Prometheus."""
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
        """Return the seconds since a tendril has reported itself."""
        return self.clock() - tendril.seen

    def _drop_expired(self) -> None:
        now = self.clock()
        gone = [key for key, each in self._known.items() if now - each.seen > EXPIRES]
        for key in gone:
            del self._known[key]
