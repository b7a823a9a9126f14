"""The agent server on a Ray cluster of three nodes, with two engines.

The engines are real. The server, an engine and a whole node die while clients ask.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from tests.kit.agent_server import tool
from tests.kit.asking_clients import CLIENTS, asking_clients
from tests.kit.patience import PATIENCE
from tests.kit.ray_cluster import RayCluster, ray_cluster, require_ray

require_ray()

pytest_plugins = ("tests.kit.engine",)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("only_ray"),
    pytest.mark.asyncio(loop_scope="module"),
]

KEY = "a key for all"
HEADERS = {"authorization": f"Bearer {KEY}"}
SETTINGS = {
    "SERVER_ADMIN_KEY": KEY,
    "MODEL_THREADS": "1",
    "MODEL_CONTEXT": "1024",
    "MODEL_TOOLS": "constrained",
    "MODEL_CHOOSES_TOOLS": "false",
    "RAY_MIN_ENGINES": "2",
    "RAY_MAX_ENGINES": "2",
}
AFTER = 4
"""Answers that each client must have after one has died."""

LOOK_UP: Any = tool("look_up", "word")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    model_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RayCluster]:
    """Three nodes and a server on them. In the end nothing of Ray may be left running."""
    assert model_file.name  # it was pulled, if need be
    async with ray_cluster(tmp_path_factory.mktemp("data"), nodes=3, **SETTINGS) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai(cluster: RayCluster) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, which tries nothing twice."""
    async with AsyncOpenAI(
        base_url=f"{cluster.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE
    ) as client:
        yield client


async def test_it_chats_streams_and_calls_tools(openai: AsyncOpenAI) -> None:
    whole = await openai.chat.completions.create(
        model="terra", messages=[{"role": "user", "content": "Say hello."}], max_tokens=8
    )
    assert whole.choices[0].message.content
    assert whole.usage
    assert whole.usage.completion_tokens <= 8
    stream = await openai.chat.completions.create(
        model="terra",
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=8,
        stream=True,
    )
    chunks = [chunk async for chunk in stream]
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1
    called = await openai.chat.completions.create(
        model="terra",
        messages=[{"role": "user", "content": "Look up the word pump."}],
        tools=[LOOK_UP],
        tool_choice="required",
        max_tokens=64,
    )
    assert called.choices[0].message.tool_calls


async def test_an_answer_has_one_request_id(cluster: RayCluster) -> None:
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=PATIENCE) as http:
        answer = await http.get("/v1/models", headers=HEADERS | {"x-request-id": "mine"})
    assert answer.headers.get_list("x-request-id") == ["mine"]


async def test_who_has_no_key_is_refused_by_the_server_and_by_ray(cluster: RayCluster) -> None:
    async with httpx2.AsyncClient(base_url=cluster.url, timeout=PATIENCE) as http:
        assert (await http.get("/v1/models")).status_code == 401
    joining = f"import ray; ray.init(address={cluster.address!r}, log_to_driver=False)"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", joining),
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        _, said = await process.communicate()
    assert process.returncode != 0
    assert b"Unauthenticated" in said or b"Authentication" in said


async def test_when_a_server_dies_no_request_fails_before_its_first_byte(
    cluster: RayCluster, openai: AsyncOpenAI
) -> None:
    async with asking_clients(openai) as clients:
        await clients.answered(CLIENTS)
        (server,) = cluster.replicas("ingress")
        server.kill()
        await clients.answered(CLIENTS * AFTER)
        assert server not in cluster.replicas("ingress")
    clients.check()


async def test_when_a_node_dies_no_request_fails_before_its_first_byte(
    cluster: RayCluster, openai: AsyncOpenAI
) -> None:
    async with asking_clients(openai) as clients:
        await clients.answered(CLIENTS)
        await cluster.until_replicas("engine-terra", 2)
        cluster.kill_node_of(cluster.beside_head("engine-terra"))
        await clients.answered(CLIENTS * AFTER)
        await cluster.until_replicas("engine-terra", 2)
        await clients.answered(CLIENTS)
    clients.check()


async def test_a_conversation_stays_with_its_engine_until_that_one_dies(
    cluster: RayCluster, openai: AsyncOpenAI
) -> None:
    await cluster.until_replicas("engine-terra", 2)
    for number in range(3):
        talk = f"sticky/{number}"
        first = await _engine_of_turn(cluster, openai, talk)
        assert await _engine_of_turn(cluster, openai, talk) == first
    first.kill()
    assert await _engine_of_turn(cluster, openai, talk) != first
    await cluster.until_replicas("engine-terra", 2)


async def _engine_of_turn(cluster: RayCluster, openai: AsyncOpenAI, session: str) -> psutil.Process:
    """Ask in a conversation; returns the replica that has answered, which has used most time."""
    before = {replica: _engine_seconds(replica) for replica in cluster.replicas("engine-terra")}
    answer = await openai.chat.completions.create(
        model="terra",
        messages=[{"role": "user", "content": "Tell me of the sea."}],
        max_tokens=24,
        extra_headers={"x-session-id": session},
    )
    assert answer.choices[0].message.content
    used = {
        replica: _engine_seconds(replica) - before.get(replica, 0)
        for replica in cluster.replicas("engine-terra")
    }
    return max(used, key=lambda replica: used[replica])


def _engine_seconds(replica: psutil.Process) -> float:
    """Processor time of the engine of a replica: its child."""
    try:
        return float(sum(child.cpu_times().user for child in replica.children()))
    except psutil.NoSuchProcess:
        return 0.0


async def test_a_cluster_that_was_joined_is_left_alone(cluster: RayCluster) -> None:
    nodes = cluster.nodes()
    await cluster.stop_server()
    await cluster.until_replicas("ingress", 0)
    await cluster.until_replicas("engine-terra", 0)
    assert cluster.nodes() == nodes
    assert len(nodes) == 2  # the third was killed
