"""Which engines the nodes of a cluster have room for, and what is said of those that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_server.ray.capacity import shortage
from terrarium.config import Config

BIG: Mapping[str, Any] = {"path": "/models/big.gguf", "threads": 6}


def said(
    nodes: Sequence[Mapping[str, float]], model: Mapping[str, Any], **ray: float
) -> str | None:
    tables = {"model": model, "ray": {"max_engines": 9, **ray}}
    return shortage(Config(tables, None, Path("data")), nodes, "this cluster")


def test_nothing_is_said_of_engines_that_fit() -> None:
    assert said([{"CPU": 4}], {"threads": 2}, min_engines=2) is None
    assert said([{"CPU": 2}, {"CPU": 2}], {"threads": 2}, min_engines=2) is None
    assert said([{"CPU": 2, "GPU": 1}], {"threads": 2}, engine_gpus=1) is None


def test_an_upstream_needs_no_cpu() -> None:
    assert said([{"CPU": 1}], {"upstream": "http://127.0.0.1:1", "threads": 8}) is None


def test_too_few_cpus_are_said_with_the_settings_that_would_fit() -> None:
    assert said([{"CPU": 2}], {"threads": 2}, min_engines=2) == (
        "2 engines of 2 CPUs each need 4; this cluster has 2: "
        "set [model] threads = 1 or [ray] min_engines = 1"
    )
    assert said([{"CPU": 2}], {"threads": 8}) == (
        "1 engine of 8 CPUs needs 8; this cluster has 2: set [model] threads = 2"
    )


def test_what_would_set_no_engine_free_is_not_proposed() -> None:
    assert said([{"CPU": 2}], {"threads": 1}, min_engines=3) == (
        "3 engines of 1 CPU each need 3; this cluster has 2: set [ray] min_engines = 2"
    )
    assert said([{"CPU": 1}], {"threads": 2}, min_engines=2) == (
        "2 engines of 2 CPUs each need 4; this cluster has 1: "
        "set [model] threads = 1 and [ray] min_engines = 1"
    )


def test_an_engine_has_to_fit_on_one_node() -> None:
    assert said([{"CPU": 2}, {"CPU": 2}], {"threads": 4}) == (
        "1 engine of 4 CPUs needs 4; this cluster has 4, on 2 nodes of at most 2: "
        "set fewer [model] threads or [ray] min_engines"
    )


def test_the_engines_of_all_models_are_counted_together() -> None:
    assert said([{"CPU": 6}], {"threads": 2, "models": {"big": BIG}}) == (
        "1 engine of 2 CPUs and 1 engine of 6 CPUs each need 8; this cluster has 6: "
        "set fewer [model] threads or [ray] min_engines"
    )


@pytest.mark.parametrize("node", [{"CPU": 8}, {"CPU": 8, "GPU": 1}])
def test_too_few_gpus_are_said_as_well(node: Mapping[str, float]) -> None:
    assert said([node], {"threads": 2}, min_engines=2, engine_gpus=1) == (
        f"2 engines of 1 GPU each need 2; this cluster has {node.get('GPU', 0)}: "
        "lower [ray] engine_gpus"
    )
