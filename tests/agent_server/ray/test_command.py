"""What `terrarium server --ray` refuses before it starts anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_server.model_catalogue.machine import cores
from agent_server.ray.command import shortage
from terrarium.config import Config
from tests.kit.command import terrarium


def lacks(nodes: Sequence[Mapping[str, float]], model: Mapping[str, Any], **ray: float) -> str:
    tables = {"model": model, "ray": {"max_engines": 9, **ray}}
    return shortage(Config(tables, None, Path("data")), nodes, "it") or ""


def test_engines_need_the_cpus_and_gpus_of_one_node_each() -> None:
    assert not lacks([{"CPU": 4}], {"threads": 2}, min_engines=2)
    assert not lacks([{"CPU": 2}, {"CPU": 2}], {"threads": 2}, min_engines=2)
    assert not lacks([{"CPU": 2, "GPU": 1}], {"threads": 2}, engine_gpus=1)
    assert not lacks([{"CPU": 1}], {"upstream": "http://127.0.0.1:1", "threads": 8})
    assert "need 4 CPU; it has 2 CPU" in lacks([{"CPU": 2}], {"threads": 2}, min_engines=2)
    assert "need 4 CPU; it has 4 CPU" in lacks([{"CPU": 2}, {"CPU": 2}], {"threads": 4})
    said = lacks([{"CPU": 8, "GPU": 1}], {"threads": 2}, min_engines=2, engine_gpus=1)
    assert "need 4 CPU and 2 GPU; it has 8 CPU and 1 GPU" in said
    big = {"path": "/models/big.gguf", "threads": 6}
    assert "need 8 CPU; it has 6" in lacks([{"CPU": 6}], {"threads": 2, "models": {"big": big}})


@pytest.mark.process
async def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')\n")
    done = await terrarium("server", "--ray", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.status == 78
    assert "pip install '.[ray]' in the checkout" in done.err


@pytest.mark.process
async def test_engines_for_which_this_machine_has_too_few_cpus_are_refused_at_once(
    tmp_path: Path,
) -> None:
    settings = {"RAY_MIN_ENGINES": "2", "RAY_MAX_ENGINES": "2", "MODEL_THREADS": str(cores())}
    done = await terrarium("server", "--ray", cwd=tmp_path, **settings)
    assert done.status == 78
    said = " ".join(done.err.split())
    assert f"need {2 * cores()} CPU; this machine has {cores()} CPU: lower [model] threads" in said
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
