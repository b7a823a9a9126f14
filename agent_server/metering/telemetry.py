"""Prometheus metrics of the agent server, and spans of its requests to models, for OpenTelemetry.

Spans need the extra `otel`. OpenTelemetry's own environment variables configure them; without these
its SDK is not imported.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

import structlog
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

from agent_server.engine_protocol import TRACEPARENT, EngineState
from agent_server.metering.request_context import RequestContext
from storage.usage.usage import TokenUsage

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = structlog.get_logger()

DURATION_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256)
SPEED_BUCKETS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640)

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody reads

MAX_TENDRILS = 100
"""Maximum number of tendrils with a label; all further ones share the label `other`, because each
label takes memory until a restart."""


class Metrics(Collector):
    """The metrics of one server. A tendril is named after its API key."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._tendrils: set[str] = set()
        # prometheus_client looks the series of labels up slowly.
        self._series = cache(lambda metric, *labels: metric.labels(*labels))
        self._engines: dict[str, Callable[[], EngineState]] = {}
        whose = ["tendril", "model"]
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=DURATION_BUCKETS)
        self._requests = counter("terrarium_requests", "Requests answered", ["route", "status"])
        self._seconds = histogram(
            "terrarium_request_seconds", "From the request to the end of its answer", ["route"]
        )
        self._tokens = counter(
            "terrarium_tokens",
            "Tokens of prompts (prompt), those of them that were in the engine's cache (cached), "
            "and of answers (completion)",
            [*whose, "kind"],
        )
        self._first = histogram(
            "terrarium_first_token_seconds",
            "From the request to the first token of its answer",
            whose,
        )
        self._speed = histogram(
            "terrarium_tokens_per_second",
            "Tokens of an answer after its first, per second",
            whose,
            buckets=SPEED_BUCKETS,
        )
        self._wait = histogram(
            "terrarium_wait_seconds",
            "How long a request waited for a slot",
            [*whose, "priority"],
        )
        self._disk = gauge("terrarium_disk_trouble", "1 while the server can write no usage")
        self._database = gauge("terrarium_database_up", "0 while PostgreSQL cannot be reached")
        self._database.set(1)
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the running engines and their upstreams, for Prometheus."""
        gauge, which = GaugeMetricFamily, ["model", "upstream"]
        slots = gauge("terrarium_slots", "Requests that can run at once", labels=["model"])
        running = gauge("terrarium_running", "Requests that run", labels=["model"])
        waiting = gauge("terrarium_waiting", "Requests that wait", labels=["model", "priority"])
        up = gauge("terrarium_upstream_up", "0 while it gets no requests", labels=which)
        there = gauge("terrarium_upstream_running", "Requests that run there", labels=which)
        failures = CounterMetricFamily(
            "terrarium_upstream_failures", "Failed requests and health checks", labels=which
        )
        for model, read in self._engines.items():
            engine = read()
            slots.add_metric([model], engine.slots)
            running.add_metric([model], engine.running)
            for priority, count in engine.waiting.items():
                waiting.add_metric([model, priority], count)
            for each in engine.upstreams:
                up.add_metric([model, each.name], each.is_up)
                there.add_metric([model, each.name], each.running)
                failures.add_metric([model, each.name], each.failures)
        yield from (slots, running, waiting, up, there, failures)

    def watch_storage(self, is_behind: Callable[[], bool], is_away: Callable[[], bool]) -> None:
        """Have gauges of whether usage cannot be written, and of whether the database is away."""
        self._disk.set_function(is_behind)
        self._database.set_function(lambda: not is_away())

    @contextmanager
    def watch_engine(self, model: str, read: Callable[[], EngineState]) -> Iterator[None]:
        """Have the metrics of an engine within the block."""
        self._engines[model] = read
        try:
            yield
        finally:
            # A model whose settings have changed ends its answers beside its successor, which has
            # the same name and by now the metrics.
            if self._engines.get(model) is read:
                del self._engines[model]

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


HOW_TO_INSTALL = "pip install 'terrarium-irc[otel]'"

FLUSH_TIMEOUT = 2.0
"""Seconds that the last spans may take at the end. The SDK alone would retry for ten."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """Makes the spans of one server, none until `exporting` and none without an exporter."""

    def __init__(self) -> None:
        self._tracer: Tracer | None = None

    @asynccontextmanager
    async def exporting(self) -> AsyncIterator[None]:
        """Export spans to where the environment says; at its end, those that wait."""
        default = "otlp" if any(map(os.environ.get, _ENDPOINTS)) else "none"
        # Empty counts as unset, as OpenTelemetry's specification demands.
        names = (os.environ.get("OTEL_TRACES_EXPORTER") or default).replace(" ", "").split(",")
        # The SDK's name for OTLP, whose protocol is HTTP by default.
        wanted = {"otlp_proto_http" if each == "otlp" else each for each in names} - {"none"}
        exporters = entry_points(group="opentelemetry_traces_exporter")
        if missing := sorted(wanted - exporters.names):
            log.warning("tracing.not_installed", exporters=missing, hint=HOW_TO_INSTALL)
        found = [exporters[name] for name in sorted(wanted & exporters.names)]
        if not found:
            yield
            return
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(shutdown_on_exit=False)
        for each in found:
            provider.add_span_processor(BatchSpanProcessor(each.load()()))
        self._tracer = provider.get_tracer("terrarium")
        try:
            yield
        finally:
            self._tracer = None
            ending = threading.Thread(target=provider.shutdown, daemon=True)
            ending.start()
            await asyncio.to_thread(ending.join, FLUSH_TIMEOUT)

    @contextmanager
    def span(
        self,
        name: str,
        context: RequestContext,
        attributes: dict[str, Any],
        kind: Literal["CLIENT", "INTERNAL"] = "INTERNAL",
    ) -> Iterator[RequestContext]:
        """Measure the block as a span below that of `context`; yield a context with the new one.

        What is added to `attributes` within the block belongs to the span, too.
        """
        if self._tracer is None:
            yield context
            return
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        propagator, headers = TraceContextTextMapPropagator(), dict[str, str]()
        parent = propagator.extract({TRACEPARENT: context.traceparent})
        span = self._tracer.start_span(name, parent, SpanKind[kind], attributes)
        # Not made the current span: a generator may be closed in another task than it began in.
        propagator.inject(headers, set_span_in_context(span))
        try:
            yield replace(context, traceparent=headers.get(TRACEPARENT, ""))
        except Exception as error:
            # Without its text, which may quote the prompt.
            span.set_status(StatusCode.ERROR)
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            span.set_attributes(attributes)
            span.end()
