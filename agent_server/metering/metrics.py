"""Prometheus metrics of the agent server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agent_server.metering.request_context import PRIORITIES, RequestContext
from storage.usage.usage import TokenUsage


class AdmissionState(Protocol):
    """The numbers of an admission queue that the gauges read."""

    @property
    def slots(self) -> int:
        """The number of slots."""

    @property
    def running(self) -> int:
        """The number of running requests."""

    def waiting_count(self, *, background: bool) -> int:
        """Return the number of waiting requests of one priority."""


class UpstreamState(Protocol):
    """The state of an upstream that the metrics show."""

    down: bool
    in_flight: int
    failed_total: int

    @property
    def name(self) -> str:
        """Its host and port."""


class UpstreamCollector(Collector):
    """A Prometheus collector of the upstreams of each model."""

    def __init__(self, upstreams: Mapping[str, Sequence[UpstreamState]]) -> None:
        self._upstreams = upstreams

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the upstreams."""
        which = ["model", "upstream"]
        up = GaugeMetricFamily("terrarium_upstream_up", "0 while it gets no requests", labels=which)
        running = GaugeMetricFamily(
            "terrarium_upstream_running", "Requests that run there", labels=which
        )
        failures = CounterMetricFamily(
            "terrarium_upstream_failures", "Failed requests and health checks", labels=which
        )
        for model, upstreams in self._upstreams.items():
            for each in upstreams:
                up.add_metric([model, each.name], not each.down)
                running.add_metric([model, each.name], each.in_flight)
                failures.add_metric([model, each.name], each.failed_total)
        yield from (up, running, failures)


DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)
SPEED_BUCKETS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads

MAX_TENDRILS = 100
"""Maximum number of tendrils with a label; all further ones share the label `other`, because each
label takes memory until a restart."""


class Metrics:
    """The metrics of one server. A tendril is named after its API key."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._tendrils: set[str] = set()
        # prometheus_client looks the series of labels up slowly.
        self._series = cache(lambda metric, *labels: metric.labels(*labels))
        self._watched: dict[str, AdmissionState] = {}
        whose = ["tendril", "model"]
        self._requests = Counter(
            "terrarium_requests", "Requests answered", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "terrarium_request_seconds", "From the request to the end of its answer", ["route"],
            registry=registry, buckets=DURATION_BUCKETS,
        )  # fmt: skip
        self._tokens = Counter(
            "terrarium_tokens", "Tokens of prompts (prompt), those of them that were in the "
            "engine's cache (cached), and of answers (completion)", [*whose, "kind"],
            registry=registry,
        )  # fmt: skip
        self._first = Histogram(
            "terrarium_first_token_seconds", "From the request to the first token of its answer",
            whose, registry=registry, buckets=DURATION_BUCKETS,
        )  # fmt: skip
        self._speed = Histogram(
            "terrarium_tokens_per_second", "Tokens of an answer after its first, per second",
            whose, registry=registry, buckets=SPEED_BUCKETS,
        )  # fmt: skip
        self._wait = Histogram(
            "terrarium_wait_seconds", "How long a request waited for a slot",
            [*whose, "priority"], registry=registry, buckets=DURATION_BUCKETS,
        )  # fmt: skip
        self._slots = Gauge(
            "terrarium_slots", "Requests that can run at once", ["model"], registry=registry
        )
        self._running = Gauge(
            "terrarium_running", "Requests that run", ["model"], registry=registry
        )
        self._waiting = Gauge(
            "terrarium_waiting", "Requests that wait", ["model", "priority"], registry=registry
        )
        self._disk = Gauge(
            "terrarium_disk_trouble", "1 while the server can write no usage", registry=registry
        )
        self._database = Gauge(
            "terrarium_database_up", "0 while PostgreSQL cannot be reached", registry=registry
        )
        self._database.set(1)
        self._upstreams: dict[str, Sequence[UpstreamState]] = {}
        registry.register(UpstreamCollector(self._upstreams))

    def watch_storage(self, is_behind: Callable[[], bool], is_away: Callable[[], bool]) -> None:
        """Have gauges of whether usage cannot be written, and of whether the database is away."""
        self._disk.set_function(is_behind)
        self._database.set_function(lambda: not is_away())

    @contextmanager
    def watch_queue(
        self, model: str, state: AdmissionState, upstreams: Sequence[UpstreamState] = ()
    ) -> Iterator[None]:
        """Have gauges of the slots and the waiting requests of an engine, and of its upstreams,
        within the block."""
        self._watched[model], self._upstreams[model] = state, upstreams
        self._slots.labels(model).set_function(lambda: state.slots)
        self._running.labels(model).set_function(lambda: state.running)
        for priority in PRIORITIES:
            waiting = partial(state.waiting_count, background=priority == "background")
            self._waiting.labels(model, priority).set_function(waiting)
        try:
            yield
        finally:
            # A model whose settings have changed ends its answers beside its successor, which has
            # the same name and by now the gauges.
            if self._watched.get(model) is state:
                del self._watched[model], self._upstreams[model]
                self._slots.remove(model)
                self._running.remove(model)
                for priority in PRIORITIES:
                    self._waiting.remove(model, priority)

    def count_response(self, route: str, status: int, seconds: float) -> None:
        """Count a request, and observe how many seconds it took."""
        self._series(self._requests, route, status).inc()
        self._series(self._seconds, route).observe(seconds)

    def observe_wait(self, context: RequestContext, model: str, seconds: float) -> None:
        """Observe the seconds that a request waited for a slot, or until it gave up."""
        wait = self._series(self._wait, self._tendril(context), model, context.priority)
        wait.observe(seconds)

    def count_usage(
        self,
        context: RequestContext,
        model: str,
        used: TokenUsage,
        first: float | None,
        ended: float,
    ) -> None:
        """Count the tokens of an answer.

        `first` (None: there was no token) and `ended` are times of the monotonic clock.
        """
        whose = self._tendril(context), model
        self._series(self._tokens, *whose, "prompt").inc(used.prompt)
        self._series(self._tokens, *whose, "cached").inc(used.cached)
        self._series(self._tokens, *whose, "completion").inc(used.completion)
        if first is None:
            return
        # A usage is there already after the first part of an answer made in two.
        if context.meter.usage is None:
            self._series(self._first, *whose).observe(first - context.began)
        # The time from the first token on covers all tokens but that one.
        if used.completion > 1 and ended > first:
            speed = (used.completion - 1) / (ended - first)
            self._series(self._speed, *whose).observe(speed)

    def exposition(self) -> bytes:
        """Return these metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _tendril(self, context: RequestContext) -> str:
        name = context.key.name
        if name in self._tendrils or len(self._tendrils) < MAX_TENDRILS:
            self._tendrils.add(name)
            return name
        return "other"
