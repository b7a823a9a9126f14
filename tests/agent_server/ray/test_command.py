"""What `terrarium server --ray` refuses before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_server.model_catalogue.machine import cores
from tests.kit.command import terrarium


@pytest.mark.process
async def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')\n")
    done = await terrarium("server", "--ray", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.status == 78
    assert "pip install 'terrarium[ray]'" in done.err


@pytest.mark.process
async def test_engines_for_which_this_machine_has_too_few_cpus_are_refused_at_once(
    tmp_path: Path,
) -> None:
    settings = {"RAY_MIN_ENGINES": "2", "RAY_MAX_ENGINES": "2", "MODEL_THREADS": str(cores())}
    done = await terrarium("server", "--ray", cwd=tmp_path, **settings)
    assert done.status == 78
    said = " ".join(done.err.split())
    assert f"need {2 * cores()}; this machine has {cores()}: set [model] threads = " in said
    assert "or [ray] min_engines = 1" in said
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
