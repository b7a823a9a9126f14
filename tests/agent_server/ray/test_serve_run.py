"""`serve run` with the file and the environment of deploy/ray, on one host with a real engine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import psutil
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.kit.asking_clients import asking_clients
from tests.kit.command import environment_without_settings, gone
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port
from tests.kit.ray_cluster import STARTING, require_ray, until_serving

require_ray()

pytest_plugins = ("tests.kit.engine",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("only_ray"),
    pytest.mark.asyncio(loop_scope="module"),
]

DEPLOY = Path(__file__).parents[3] / "deploy" / "ray"
OTHERS = ("STORAGE_URL", "MODEL_THREADS", "RAY_MIN_ENGINES", "RAY_MAX_ENGINES")
"""What node.env has for larger machines than this one."""

KEY = "a key for all"
SETTINGS = f"""
[server]
admin_key = "{KEY}"

[model]
threads = 1
context = 1024
slots = 1
chooses_tools = false

[ray]
min_engines = 1
max_engines = 2
upscale_delay = 1
downscale_delay = 1
"""


@dataclass
class Running:
    """`serve run`, and a client of what it serves."""

    process: Process
    openai: AsyncOpenAI

    def ray(self) -> list[psutil.Process]:
        """Return all that it has started."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    async def until_engines(self, count: int) -> None:
        """Return when so many replicas of the engine run. Raises TimeoutError."""
        await until(lambda: len([*filter(_is_engine, self.ray())]) == count, STARTING)


def _is_engine(process: psutil.Process) -> bool:
    try:
        return "agent_server.engines.llama_child" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _environment(folder: Path) -> Mapping[str, str]:
    """Return the environment of node.env with a token of its own."""
    lines = (DEPLOY / "node.env").read_text().splitlines()
    pairs = (line.partition("=")[::2] for line in lines if line and not line.startswith("#"))
    token = folder / "ray-token"
    token.write_text(token_hex(32))
    return {
        **environment_without_settings(),
        **{name: value for name, value in pairs if name not in OTHERS},
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ADDRESS": "local",  # else it joins a cluster that another test has just started
        "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    model_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    """`serve run` that is ready. What is left of it in the end is killed."""
    assert model_file.name  # it was pulled, if need be
    folder, port = tmp_path_factory.mktemp("serve"), free_port()
    (folder / "terrarium.toml").write_text(SETTINGS)
    text = (DEPLOY / "serve.yaml").read_text()
    for given, ours in (
        ("/srv/terrarium", str(folder)),
        ("host: 0.0.0.0", "host: 127.0.0.1"),
        ("port: 8080", f"port: {port}"),
    ):
        assert given in text
        text = text.replace(given, ours)
    (folder / "serve.yaml").write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("serve")), "run", "serve.yaml"),
        cwd=folder,
        env=_environment(folder),
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await until_serving(url)
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE
        ) as client:
            yield Running(process, client)
    finally:
        if process.returncode is None:
            for each in psutil.Process(process.pid).children(recursive=True):
                each.kill()
            process.kill()
        await process.communicate()


async def test_serve_run_with_the_file_of_deploy_answers(running: Running) -> None:
    answer = await running.openai.chat.completions.create(
        model="terra", messages=[{"role": "user", "content": "Say hello."}], max_tokens=8
    )
    assert answer.choices[0].message.content


async def test_engines_come_and_go_with_the_requests_and_none_fails(running: Running) -> None:
    await running.until_engines(1)
    async with asking_clients(running.openai, 1) as steady:
        async with asking_clients(running.openai) as many:
            await running.until_engines(2)
            await many.answered(8)
        await running.until_engines(1)
        await steady.answered(2)
    for clients in (steady, many):
        clients.check()
        assert clients.broken_off == []


async def test_ctrl_c_ends_serve_run_and_leaves_nothing_of_ray(running: Running) -> None:
    below = running.ray()
    os.killpg(running.process.pid, signal.SIGINT)  # as a terminal does
    async with asyncio.timeout(STARTING):
        said, _ = await running.process.communicate()
    assert running.process.returncode == 0, said.decode()
    await gone(below)
