"""The parts of a running server that its endpoints use.

In memory are the responses of /v1/responses, for requests that continue from one of them (the least
recently used are evicted for new ones), and the tendrils that have reported recently. A restart
empties both.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

from agent_server.admission.admitted_engine import AdmittedEngine
from agent_server.metering.accounts import Metering
from agent_server.model_files.store import ModelPulls
from agent_server.models.pool import ModelPool

MAX_RESPONSES = 1000
MAX_BYTES = 64 * 1024 * 1024
"""Limits: the number of responses, and the bytes of all of them with their conversations."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, the chat messages up to and including it, and the session they belong to.

    `response` and `messages` are JSON. As text they take the memory that is counted.
    """

    id: str
    response: bytes
    messages: bytes
    session: str

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.response) + len(self.messages)


class ResponseStore:
    """An LRU cache of responses by owner and id; no owner sees another's.

    At most `most` responses of `largest` bytes together.
    """

    def __init__(self, *, most: int = MAX_RESPONSES, largest: int = MAX_BYTES) -> None:
        self._most = most
        self._largest = largest
        self._stored: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._size = 0

    def save(self, owner: str, stored: StoredResponse) -> None:
        """Store a response, and evict others for it; one larger than the store is dropped."""
        self.delete(owner, stored.id)
        if stored.size > self._largest:
            return
        self._stored[owner, stored.id] = stored
        self._size += stored.size
        while len(self._stored) > self._most or self._size > self._largest:
            _, evicted = self._stored.popitem(last=False)
            self._size -= evicted.size

    def get(self, owner: str, identity: str) -> StoredResponse | None:
        """Return a response and mark it as used; None if it is not stored."""
        found = self._stored.get((owner, identity))
        if found is not None:
            self._stored.move_to_end((owner, identity))
        return found

    def delete(self, owner: str, identity: str) -> bool:
        """Delete a response; return False if there is none."""
        deleted = self._stored.pop((owner, identity), None)
        if deleted is None:
            return False
        self._size -= deleted.size
        return True


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


@dataclass(frozen=True, slots=True)
class ServerState:
    """The parts of a running server that its endpoints use.

    `tendrils` has the reports of live tendrils, `pulls` fetches models; `started` is a Unix
    timestamp.
    """

    pool: ModelPool
    embedder: AdmittedEngine
    metering: Metering
    pulls: ModelPulls
    responses: ResponseStore = field(default_factory=ResponseStore)
    tendrils: TendrilRegistry = field(default_factory=TendrilRegistry)
    started: int = field(default_factory=lambda: int(time.time()))
