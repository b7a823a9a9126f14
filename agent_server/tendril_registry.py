"""Registry, in memory, of the tendrils that have reported recently, and their metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

REPORT_TIMEOUT = 30.0
"""Seconds without a report after which a tendril is dropped."""

MAX_TENDRILS = 100
"""Maximum number of tendrils per key; reports of further ones are refused."""

ToolName = Annotated[str, Field(max_length=64)]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Number = Annotated[float, Field(allow_inf_nan=False)]


class TendrilReport(BaseModel):
    """A tendril's status report, sent every ten seconds."""

    state: str = Field(max_length=16, description='"ready", "waiting" or "starting"')
    asked_about: str = Field("", max_length=200, description="what other tendrils can ask it")
    tools: list[ToolName] = Field(default_factory=list, max_length=200)
    pending: int = Field(0, ge=0, description="questions being answered, or waiting for it")
    tokens_today: int = Field(0, ge=0, description="tokens used today (UTC)")
    counters: dict[MetricName, Number] = Field(default_factory=dict, max_length=50)
    gauges: dict[MetricName, Number] = Field(default_factory=dict, max_length=60)
    disk_trouble: bool = Field(False, description="it can write nothing at the moment")


class TendrilObject(TendrilReport):
    """A live tendril; `key` is the name of the API key that it reports with."""

    name: str
    key: str
    seconds_ago: float = Field(description="since its last report")


@dataclass(slots=True)
class TendrilRegistry:
    """The latest reports, by key and name.

    As the key is part of the index, no key can report for another key's tendril. The reports are
    stored with the time of `clock` at which they arrived.
    """

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], tuple[TendrilReport, float]] = field(default_factory=dict)

    def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Store a report; return False if the key already has `MAX_TENDRILS` other tendrils."""
        names = {each.name for each in self.present() if each.key == key}
        if len(names) >= MAX_TENDRILS and name not in names:
            return False
        self._known[key, name] = report, self.clock()
        return True

    def present(self) -> Sequence[TendrilObject]:
        """Return the tendrils that have not expired, ordered by name, then key."""
        now = self.clock()
        self._known = {
            whose: (report, seen)
            for whose, (report, seen) in self._known.items()
            if now - seen <= REPORT_TIMEOUT
        }
        found = [
            TendrilObject(
                name=name, key=key, seconds_ago=round(now - seen, 1), **report.model_dump()
            )
            for (key, name), (report, seen) in self._known.items()
        ]
        return sorted(found, key=lambda each: (each.name, each.key))


@dataclass(frozen=True, slots=True, eq=False)
class TendrilCollector(Collector):
    """A Prometheus collector of what these tendrils have reported."""

    tendrils: Sequence[TendrilObject]

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
            pending.add_metric(own, each.pending)
            disk.add_metric(own, each.disk_trouble)
            for name, value in each.gauges.items():
                gauges.add_metric([*own, name], value)
            for name, value in each.counters.items():
                counters.add_metric([*own, name], value)
        yield from (pending, disk, gauges, counters)
