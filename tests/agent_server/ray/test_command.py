"""`terrarium server --ray` on one host, and without the extra."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.kit.agent_server import until_ready
from tests.kit.command import begun, terrarium
from tests.kit.gone import gone
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.ray_cluster import STARTING, require_ray, until_listening


@pytest.mark.process
async def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError('no Ray here')\n")
    done = await terrarium("server", "--ray", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.status == 78
    assert "pip install 'terrarium[ray]'" in done.err


@pytest.mark.slow
async def test_on_one_host_it_starts_ray_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    require_ray()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with ScriptedOpenAI() as script:
        settings = {"SERVER_PORT": str(port), "MODEL_UPSTREAM": script.url}
        words = ("--log-level", "warning", "server", "--ray", "--data", "data")
        async with begun(*words, cwd=tmp_path, **settings) as server:
            await until_listening(port)
            await until_ready(url, STARTING)
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
                body = {"messages": [{"role": "user", "content": "hello"}]}
                answer = await http.post("/v1/chat/completions", json=body)
            below = psutil.Process(server.pid).children(recursive=True)
            server.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STARTING):
                _, said = await server.communicate()
    assert answer.json()["choices"][0]["message"]["content"] == "ok"
    assert len(below) > 5
    await gone(below)
    assert server.returncode == 0, said.decode()
    assert (tmp_path / "data" / "ray-token").stat().st_mode & 0o777 == 0o600
