"""Spans of requests to models, as a collector of OpenTelemetry receives them over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from agent_server.metering.telemetry import FLUSH_TIMEOUT
from tests.kit.agent_server import CHAT, agent_client
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving

HELLO = {"messages": [{"role": "user", "content": "a secret question"}]}
TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CLIENTS_SPAN = {"traceparent": f"00-{TRACE}-{CLIENT}-01"}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Span]]:
    """Run a collector that the environment names; yield the spans that it has received so far.

    They are complete once the agent server has stopped.
    """
    spans: list[Span] = []

    async def receive(request: Request) -> Response:
        export = ExportTraceServiceRequest.FromString(await request.body())
        for resource in export.resource_spans:
            for scope in resource.scope_spans:
                spans.extend(scope.spans)
        return Response(media_type="application/x-protobuf")

    routes = [Route("/v1/traces", receive, methods=["POST"])]
    async with serving(Starlette(routes=routes)) as url:
        monkeypatch.setenv(ENDPOINT, url)
        yield spans


@asynccontextmanager
async def traced(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[list[Span], ScriptedOpenAI, httpx2.AsyncClient]]:
    """The spans of a server, its upstream, and a client of it."""
    async with (
        collector(monkeypatch) as spans,
        ScriptedOpenAI(model="m") as upstream,
        agent_client({"upstream": upstream.url, "chooses_tools": False}) as http,
    ):
        yield spans, upstream, http


def of_client(spans: list[Span]) -> dict[str, Span]:
    """The spans of the client's trace by name; those of our own tests of the model have others."""
    return {span.name: span for span in spans if span.trace_id.hex() == TRACE}


def attributes(span: Span) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value")
        for each in span.attributes
    }


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [(CHAT, HELLO, "chat"), ("/v1/completions", {"prompt": "a secret text"}, "text_completion")],
)
async def test_an_answer_is_a_span_below_the_clients_and_above_the_upstreams(
    monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], operation: str
) -> None:
    async with traced(monkeypatch) as (spans, upstream, http):
        answer = await http.post(path, json=body, headers=CLIENTS_SPAN)
        told = upstream.headers[-1]["traceparent"]
    usage = answer.json()["usage"]
    found = of_client(spans)
    assert set(found) == {f"{operation} terra", "queue"}
    span, queue = found[f"{operation} terra"], found["queue"]
    assert span.parent_span_id.hex() == CLIENT
    assert queue.parent_span_id == span.span_id
    assert span.start_time_unix_nano <= queue.start_time_unix_nano
    assert queue.end_time_unix_nano <= span.end_time_unix_nano
    assert told == f"00-{TRACE}-{span.span_id.hex()}-01"
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span) == {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "terrarium",
        "gen_ai.request.model": "terra",
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
    }
    assert usage["prompt_tokens"] > 0


async def test_a_request_without_a_trace_begins_one_and_one_that_is_not_sampled_stays_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with traced(monkeypatch) as (spans, upstream, http):
        await http.post(CHAT, json=HELLO)
        began = upstream.headers[-1]["traceparent"]
        await http.post(CHAT, json=HELLO, headers={"traceparent": f"00-{TRACE}-{CLIENT}-00"})
        unsampled = upstream.headers[-1]["traceparent"]
    _version, trace, parent, flags = began.split("-")
    assert int(flags, 16) & 1
    assert (trace, parent) in {(each.trace_id.hex(), each.span_id.hex()) for each in spans}
    assert unsampled.startswith(f"00-{TRACE}-")
    assert unsampled.endswith("-00")
    assert of_client(spans) == {}


async def test_a_failed_request_has_its_kind_but_no_text_and_embeddings_are_a_span_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with traced(monkeypatch) as (spans, upstream, http):
        upstream.default = Answer("no: a secret question", status=400)
        answer = await http.post(CHAT, json=HELLO, headers=CLIENTS_SPAN)
        assert answer.status_code == 400
        body = {"model": "terra:m", "input": "a secret text"}
        answer = await http.post("/v1/embeddings", json=body, headers=CLIENTS_SPAN)
        assert answer.status_code == 200, answer.text
    span = of_client(spans)["chat terra"]
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert attributes(span)["error.type"] == "InvalidRequest"
    assert attributes(span)["gen_ai.usage.output_tokens"] == 0
    assert "secret" not in str(spans)
    found = attributes(of_client(spans)["embeddings terra:m"])
    assert found["gen_ai.operation.name"] == "embeddings"
    assert found["gen_ai.request.model"] == "terra:m"


async def test_a_hanging_collector_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it never answers
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{listener.getsockname()[1]}")
        async with ScriptedOpenAI(model="m") as upstream:
            async with agent_client({"upstream": upstream.url, "chooses_tools": False}) as http:
                assert (await http.post(CHAT, json=HELLO)).status_code == 200
                stopping = time.monotonic()
            # Without the limit it would take the ten seconds of OTEL_EXPORTER_OTLP_TIMEOUT.
            assert time.monotonic() - stopping < 4 * FLUSH_TIMEOUT


async def test_an_exporter_that_is_not_installed_is_logged_and_the_clients_trace_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none, another")
    async with ScriptedOpenAI(model="m") as upstream:
        with capture_logs() as logs:
            async with agent_client({"upstream": upstream.url, "chooses_tools": False}) as http:
                await http.post(CHAT, json=HELLO, headers=CLIENTS_SPAN)
    (warning,) = (each for each in logs if each["event"] == "tracing.not_installed")
    assert warning["exporters"] == ["another"]
    assert upstream.headers[-1]["traceparent"] == CLIENTS_SPAN["traceparent"]


@pytest.mark.process
def test_nothing_of_the_sdk_is_imported_where_nothing_is_exported() -> None:
    program = """
import asyncio, os, sys
import agent_server.app
from agent_server.metering.request_context import RequestContext
from agent_server.metering.telemetry import Tracing

async def trace():
    tracing = Tracing()
    async with tracing.exporting():
        with tracing.span("chat", RequestContext(), {}):
            pass

asyncio.run(trace())
os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "none"}
asyncio.run(trace())
sdk = ("opentelemetry.sdk", "opentelemetry.exporter")  # FastAPI imports the API itself
print([name for name in sys.modules if name.startswith(sdk)])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
