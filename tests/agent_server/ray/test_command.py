"""What `terrarium server --ray` refuses before it starts, and what its proxy says meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent_server.model_catalogue.machine import cores
from agent_server.ray.command import shortage
from agent_server.ray.proxy import RetryMiddleware
from terrarium.config import Config
from tests.kit.command import terrarium
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving


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
    assert "pip install 'terrarium-irc[ray]'" in done.err


@pytest.mark.process
async def test_more_engines_than_this_machine_has_cpus_for_are_refused(tmp_path: Path) -> None:
    settings = {"RAY_MIN_ENGINES": "2", "RAY_MAX_ENGINES": "2", "MODEL_THREADS": str(cores())}
    done = await terrarium("server", "--ray", cwd=tmp_path, **settings)
    assert done.status == 78
    said = " ".join(done.err.split())
    assert f"need {2 * cores()} CPU; this machine has {cores()} CPU: lower [model] threads" in said
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def _gone(request: Request) -> Response:
    """Answer as Ray's proxy does while no application has the path."""
    text = f"Path '{request.url.path}' not found. Ping http://.../-/routes for available routes."
    return PlainTextResponse(text, 404)


async def _unknown(_: Request) -> Response:
    return JSONResponse({"error": {"message": "no such model"}}, 404)


async def test_while_the_application_stops_clients_get_an_error_that_they_retry() -> None:
    routes = [Route("/v1/models/none", _unknown), Route("/{path:path}", _gone, methods=["POST"])]
    async with (
        serving(RetryMiddleware(Starlette(routes=routes))) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE, trust_env=False) as http,
    ):
        answer = await http.post("/v1/chat/completions", json={"messages": []})
        assert answer.status_code == 503
        assert answer.json()["error"]["message"].startswith("no server can be reached")
        assert (await http.get("/v1/models/none")).status_code == 404
