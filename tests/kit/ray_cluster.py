"""Ray cluster of several nodes on this machine, with a real `terrarium server --ray` on it.

The nodes are child processes of `python -m tests.kit.ray_cluster`, which is a subreaper: orphans
become its children, so all of Ray's processes are its descendants, and none may be left at the end.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from agent_server.ray import command
from tests.kit.command import begun, environment_without_settings, gone, line_with
from tests.kit.patience import PATIENCE, until
from tests.kit.ports import free_port

STARTING = 3 * PATIENCE
"""Seconds to wait for Ray, which starts dozens of processes."""

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2): orphaned descendants become children of this process."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A running cluster.

    `process` is the parent of its nodes, `address` that of the head node, `server` the process of
    `terrarium server --ray` and `url` the server's base URL.
    """

    process: psutil.Process
    address: str
    url: str
    server: Process

    async def stop_server(self) -> None:
        """Stop the server with SIGTERM if it is running; assert that it exits with status 0.

        Raises TimeoutError.
        """
        if self.server.returncode is None:
            self.server.send_signal(signal.SIGTERM)
            async with asyncio.timeout(STARTING):
                await self.server.communicate()
        assert self.server.returncode == 0

    def nodes(self) -> Sequence[psutil.Process]:
        """Return the raylet processes of the running nodes, the head node's first."""
        raylets = [
            each
            for each in self.process.children()
            if each.name() == "raylet" and each.status() != psutil.STATUS_ZOMBIE
        ]
        return sorted(raylets, key=lambda process: process.create_time())

    def replicas(self, deployment: str) -> Sequence[psutil.Process]:
        """Return the processes of a deployment's replicas, the newest last."""
        return replicas_below(self.process, deployment)

    async def until_replicas(self, deployment: str, count: int) -> None:
        """Wait until exactly `count` replicas are running. Raises TimeoutError."""
        await until(lambda: len(self.replicas(deployment)) == count, STARTING)

    def beside_head(self, deployment: str) -> psutil.Process:
        """Return the process of a replica that does not run on the head node."""
        return next(each for each in self.replicas(deployment) if each.parent() != self.nodes()[0])

    def kill_node_of(self, replica: psutil.Process) -> None:
        """Kill the node of a replica with all its processes, like a power failure."""
        raylet = replica.parent()
        assert raylet is not None
        for process in (raylet, *raylet.children(recursive=True)):
            process.kill()


def replicas_below(process: psutil.Process, deployment: str) -> Sequence[psutil.Process]:
    """Return the processes of a deployment's replicas below a process, the newest last."""
    # While busy, a replica's process title also has the name of the method, after a dot.
    title = f"ray::ServeReplica:terrarium:{deployment}"
    found = []
    for each in process.children(recursive=True):
        with suppress(psutil.Error):
            if " ".join(each.cmdline()).strip().partition(".")[0] == title:
                found.append(each)
    return sorted(found, key=lambda replica: replica.create_time())


@asynccontextmanager
async def ray_cluster(
    data: Path, nodes: int, level: str = "warning", **settings: str
) -> AsyncIterator[RayCluster]:
    """Run a cluster of `nodes` nodes with one CPU each, and a server on it with `settings`.

    The server's log of `level` and above must fit into a pipe's buffer: it is read only at the end.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # short, for Unix sockets
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.kit.ray_cluster"),
            *(str(data), str(nodes), folder),
            env=environment_without_settings() | settings,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        try:
            async with asyncio.timeout(STARTING):
                address = json.loads(await line_with(process.stdout, "gcs"))["gcs"]
            words = ("--log-level", level, "server", "--ray", "--data", str(data))
            token = {"RAY_AUTH_TOKEN_PATH": str(data / "ray-token")}
            async with begun(
                *words, cwd=data, RAY_ADDRESS=address, SERVER_PORT=str(port), **token, **settings
            ) as server:
                await until_serving(url)
                cluster = RayCluster(psutil.Process(process.pid), address, url, server)
                yield cluster
                await cluster.stop_server()
        finally:
            below = psutil.Process(process.pid).children(recursive=True)
            process.stdin.close()
            async with asyncio.timeout(STARTING):
                await process.communicate()
        await gone(below)
        assert process.returncode == 0


async def until_serving(url: str) -> None:
    """Wait until the server at `url` is ready. Raises TimeoutError.

    Until then connections may be refused or broken: Serve restarts a proxy that starts slowly.
    """
    async with asyncio.timeout(STARTING), httpx2.AsyncClient(timeout=PATIENCE) as http:
        while True:
            with suppress(httpx2.TransportError):
                if (await http.get(f"{url}/ready")).is_success:
                    return
            await asyncio.sleep(0.1)


def _main(data: Path, nodes: int, folder: str) -> int:
    """Run the nodes until standard input closes; return the number of processes left behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    command.prepare(data, is_own=False)
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=1)
    print(json.dumps({"gcs": cluster.address}), flush=True)
    sys.stdin.read()
    cluster.shutdown()
    command.kill_remaining(psutil.Process().children(recursive=True))
    return len(psutil.Process().children(recursive=True))


def require_ray() -> None:
    """Skip the test if Ray is not installed."""
    pytest.importorskip("ray", reason=command.HOW_TO_GET, exc_type=ImportError)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
