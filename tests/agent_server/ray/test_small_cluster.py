"""A cluster of one CPU that a server with two engines joins: it says so, and goes on with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import line_with
from tests.kit.ray_cluster import ray_cluster, require_ray

require_ray()

pytest_plugins = ("tests.kit.engine",)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("only_ray")]


async def test_engines_that_find_no_room_are_told_of_and_the_others_answer(
    model_file: Path, tmp_path: Path
) -> None:
    assert model_file.name  # it was pulled, if need be
    settings = {
        "MODEL_THREADS": "1",
        "MODEL_CONTEXT": "1024",
        "MODEL_CHOOSES_TOOLS": "false",
        "RAY_MIN_ENGINES": "2",
        "RAY_MAX_ENGINES": "2",
    }
    async with ray_cluster(tmp_path, 1, "info", **settings) as cluster:
        told = await line_with(cluster.server.stderr, "engine.no_room")
        assert "2 engines, each on one node, need 2 CPU; this cluster has 1 CPU" in told
        assert "[warning]" in told
        await line_with(cluster.server.stderr, "server.listening")
        assert len(cluster.replicas("engine-terra")) == 1
