"""Gateways to benchmark in front of an engine, each a separate process: Terrarium and others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import aiohttp
import psutil

from agent_server.engines.llama_child import EngineSpec
from agent_server.model_files import store as model_store
from agent_server.settings.models import ModelSettings
from benchmarks.load import Order, Tally
from terrarium.config import Config
from tests.kit.command import environment_without_settings
from tests.kit.ports import free_port

KEY = "bench-key"
PATIENCE = 90.0
LITELLM = "litellm[proxy]"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running server: base URL (without `/v1`), API key, model name (empty: any), process."""

    name: str
    url: str
    key: str = ""
    model: str = ""
    process: psutil.Process | None = None

    def cpu(self) -> float:
        """Return the processor seconds used so far by the process and its descendants."""
        if self.process is None:
            return 0.0
        tree = [self.process, *self.process.children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in tree)


@asynccontextmanager
async def speaking(name: str, *command: str) -> AsyncIterator[Gateway]:
    """Run Python with `command`, a program that prints its URL as its first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        yield Gateway(name, url, process=psutil.Process(process.pid))
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def native(slots: int) -> AsyncIterator[Gateway]:
    """Run the embedded engine alone, with the small default model."""
    settings = Config({}, None, Path("data")).section(ModelSettings)
    await asyncio.to_thread(model_store.ensure, settings)
    # Half the cores: the engine's threads synchronise at each step, so a gateway or the load
    # generator sharing the core of one of them would stall them all and dominate the result.
    threads = max(1, (os.cpu_count() or 1) // 2)
    spec = EngineSpec(str(model_store.model_file(settings)), "terra", 512, slots, threads, KEY)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent_server.engines.llama_child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(spec.as_line())
        async for line in process.stdout:
            if line.startswith(b"{"):
                url = json.loads(line)["url"]
                yield Gateway("native", url, KEY, "terra", psutil.Process(process.pid))
                break
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def terrarium(upstream: str, key: str, model: str) -> AsyncIterator[Gateway]:
    """Run the agent server in front of `upstream`, with keys, admission, usage and logging on."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "SERVER_ADMIN_KEY": KEY,
            "SERVER_PORT": str(free_port()),
            "MODEL_UPSTREAM": upstream,
            "MODEL_UPSTREAM_KEY": key,
            "MODEL_UPSTREAM_MODEL": model,
            "MODEL_TOOLS": "native",
        }
        command = ("-m", "harnesses.cli", "server", "--data", folder)
        environment = environment_without_settings() | settings
        url = f"http://127.0.0.1:{settings['SERVER_PORT']}"
        with (Path(folder) / "log").open("wb") as log:
            async with _started(sys.executable, *command, env=environment, log=log) as process:
                await _answering(f"{url}/ready")
                yield Gateway("terrarium", url, KEY, "terra", process)


@asynccontextmanager
async def litellm(upstream: str, key: str, model: str) -> AsyncIterator[Gateway | None]:
    """Run LiteLLM's proxy with one worker and no database; yield None if it cannot be
    installed."""
    program = await asyncio.to_thread(_installed)
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        # LiteLLM reads YAML, of which JSON is a subset.
        parameters = {
            "model": f"openai/{model}",
            "api_base": f"{upstream}/v1",
            "api_key": key or "none",
        }
        table = {"model_list": [{"model_name": "terra", "litellm_params": parameters}]}
        config.write_text(json.dumps(table), encoding="utf-8")
        port = str(free_port())
        command = ("--config", str(config), "--host", "127.0.0.1", "--port", port)
        environment = {
            **environment_without_settings(),
            "LITELLM_MASTER_KEY": f"sk-{KEY}",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
        }
        url = f"http://127.0.0.1:{port}"
        with (Path(folder) / "log").open("wb") as log:
            async with _started(str(program), *command, env=environment, log=log) as process:
                await _answering(f"{url}/health/liveliness")
                yield Gateway("litellm", url, f"sk-{KEY}", "terra", process)


async def load(gateway: Gateway, body: dict[str, object], connections: int, count: int) -> Tally:
    """Run the load generator: send `body` `count` times in all over `connections` connections."""
    asked = {**body, "model": gateway.model} if gateway.model else body
    url = f"{gateway.url}/v1/chat/completions"
    order = Order(url, asked, connections, count, gateway.key)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.load"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    out, _ = await process.communicate(json.dumps(asdict(order)).encode() + b"\n")
    return Tally(**json.loads(out))


@asynccontextmanager
async def _started(
    *command: str, env: dict[str, str], log: IO[bytes]
) -> AsyncIterator[psutil.Process]:
    # No new session: Linux shares the processor evenly among sessions (sched(7), autogroup), so a
    # gateway with its own session would be scheduled differently from the other processes.
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _answering(url: str) -> None:
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.2)


def _installed() -> Path | None:
    """Return LiteLLM's executable, installed on first use into its own virtual environment in the
    cache folder; None if that fails."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "terrarium" / "bench" / "litellm"
    program = folder / "bin" / "litellm"
    if program.is_file():
        return program
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q", LITELLM)
        subprocess.run(pip, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"  skipped LiteLLM: it cannot be installed ({error})")
        return None
    return program
