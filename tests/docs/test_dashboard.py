"""The dashboard and the alerts use only existing metrics and labels; the dashboard shows all."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent_server.engine_protocol import EngineState, UpstreamState
from agent_server.metering.request_context import PRIORITIES, RequestContext
from agent_server.metering.telemetry import Metrics
from agent_server.server_state import TendrilCollector, TendrilObject
from storage.usage.usage import TokenUsage
from tests.docs.reference import ROOT

DASHBOARD = json.loads((ROOT / "deploy/grafana/terrarium.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus-rules.yaml").read_text(encoding="utf-8"))
OURS = re.compile(r"(terrarium_\w+)(?:\{([^}]*)\})?")
KEYWORDS = re.compile(r"by \(([^)]*)\)")


def exported() -> dict[str, set[str]]:
    """Return the labels of each sample of `/metrics`, by its name, after one answer."""
    metrics, context = Metrics(), RequestContext()
    metrics.count_response("/v1/chat/completions", 200, 1.0)
    metrics.observe_wait(context, "terra", 0.1)
    now = time.monotonic()
    metrics.count_usage(context, "terra", TokenUsage(10, 5, 3), now, now + 1)
    upstreams = [UpstreamState("gpu:8000", is_up=True, running=1, failures=0)]
    state = EngineState(2, 1, dict.fromkeys(PRIORITIES, 0), upstreams)
    with metrics.watch_engine("terra", lambda: state):
        exposition = metrics.exposition()
    tendril = TendrilObject(
        name="irc", key="irc", state="ready", seconds_ago=0, gauges={"a": 1}, counters={"a": 1}
    )
    exposition += generate_latest(TendrilCollector([tendril]))
    families = text_string_to_metric_families(exposition.decode())
    found: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries(node: Any) -> list[str]:
    """Return every query of the dashboard, including those of its variables."""
    if isinstance(node, dict):
        own = [node["expr"]] if "expr" in node else []
        own += [node["query"]] if isinstance(node.get("query"), str) else []
        return own + [found for value in node.values() for found in queries(value)]
    if isinstance(node, list):
        return [found for item in node for found in queries(item)]
    return []


def test_every_metric_of_dashboard_and_alerts_is_exported_with_the_labels_it_is_asked_for() -> None:
    known = exported()
    asked = [match for query in queries([DASHBOARD, ALERTS]) for match in OURS.finditer(query)]
    assert asked
    for match in asked:
        name, selector = match.groups()
        assert name in known, name
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector or ""))
        assert labels <= known[name], name


def test_what_the_dashboard_groups_by_is_a_label_of_the_metric() -> None:
    known = exported()
    for query in queries(DASHBOARD):
        groups = {label.strip() for found in KEYWORDS.findall(query) for label in found.split(",")}
        for name, _ in OURS.findall(query):
            assert groups <= known[name], query


def test_every_metric_is_on_the_dashboard() -> None:
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in exported()}
    shown = "\n".join(queries(DASHBOARD))
    assert {name for name in families if name not in shown} == set()
