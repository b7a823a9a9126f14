"""Spans of the requests to models, for OpenTelemetry (the extra `otel`).

OpenTelemetry's own environment variables configure it. Without them its SDK is not imported.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

import structlog

from agent_server.engine_protocol import TRACEPARENT
from agent_server.metering.request_context import RequestContext

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = structlog.get_logger()

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
