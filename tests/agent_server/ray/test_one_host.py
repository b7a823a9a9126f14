"""`terrarium server --ray` on one host: the server, its death and its end.

Everything stored is in PostgreSQL. One Ray for all tests; the last of them stops it. The model is
scripted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import httpx2
import psutil
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, NotFoundError

from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.usage.api_keys import Key, Keys
from storage.usage.usage import UsageTable
from tests.kit.agent_server import CHAT, HELLO
from tests.kit.command import begun, gone
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.postgres import postgres_database
from tests.kit.ray_cluster import STARTING, replicas_below, require_ray, until_serving
from tests.kit.server_keys import bearer, until_status

require_ray()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("only_ray"),
    pytest.mark.asyncio(loop_scope="module"),
]

ADMIN = bearer("the admin's key")

SETTINGS = """
[server]
admin_key = "the admin's key"

[usage.budgets.people]
per = "person"
tokens_per_day = 3
"""


@dataclass
class OneHost:
    """The server, its `data` folder and `database`, and a client of it."""

    process: Process
    data: Path
    database: str
    http: httpx2.AsyncClient
    script: ScriptedOpenAI

    async def ask(self, headers: Mapping[str, str]) -> httpx2.Response:
        """Ask a short question."""
        return await self.http.post(CHAT, json=HELLO, headers=headers)

    async def key(self, key: Key) -> dict[str, str]:
        """Issue a key in the database, and return its header when the server knows it."""
        async with self.tables() as database:
            made = bearer(await Keys(database).create(key))
        await until_status(self.http, 200, made)
        return made

    @asynccontextmanager
    async def tables(self) -> AsyncIterator[Database]:
        """The server's schema of the database."""
        async with Database.open(PostgresSchema(self.database, "server")) as database:
            yield database

    @asynccontextmanager
    async def openai(self, headers: Mapping[str, str]) -> AsyncIterator[AsyncOpenAI]:
        """OpenAI's client, which tries nothing twice."""
        async with AsyncOpenAI(
            base_url=self.http.base_url.join("/v1"),
            api_key=headers["authorization"].removeprefix("Bearer "),
            max_retries=0,
            timeout=PATIENCE,
        ) as client:
            yield client

    def session(self) -> Path:
        """Return the folder that Ray has its logs and sockets in."""
        (raylet,) = (each for each in self.ray() if each.name() == "raylet")
        words = (word.partition("=") for word in raylet.cmdline())
        return Path(next(path for name, _, path in words if name.strip("-") == "session_dir"))

    def ray(self) -> list[psutil.Process]:
        """Return all that the server has started."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def replicas(self, deployment: str) -> Sequence[psutil.Process]:
        """Return the processes of a deployment."""
        return replicas_below(psutil.Process(self.process.pid), deployment)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneHost]:
    """The server, ready. What is left of it in the end is killed."""
    folder, port, database = tmp_path_factory.mktemp("host"), free_port(), postgres_database()
    (folder / "terrarium.toml").write_text(SETTINGS)
    words = ("--log-level", "warning", "server", "--ray", "--config", "terrarium.toml")
    url = f"http://127.0.0.1:{port}"
    async with ScriptedOpenAI() as script, httpx2.AsyncClient(base_url=url, timeout=60) as http:
        settings = {"SERVER_PORT": str(port), "STORAGE_URL": database, "MODEL_UPSTREAM": script.url}
        async with begun(*words, "--data", "data", cwd=folder, **settings) as process:
            await until_serving(url)
            running = OneHost(process, folder / "data", database, http, script)
            try:
                yield running
            finally:
                if process.returncode is None:
                    for each in running.ray():
                        each.kill()


async def test_quota_and_budget_are_used_once_though_the_server_dies(host: OneHost) -> None:
    three = await host.key(Key("three", tokens_per_day=3))
    ada = {**await host.key(Key("tendril")), "x-person": "ada"}
    for name, headers in (("three", three), ("tendril", ada)):
        assert (await host.ask(headers)).status_code == 200
        await _until_written(host, name, 1)
    (dying,) = host.replicas("ingress")
    dying.kill()
    for headers, code in ((three, "quota_exceeded"), (ada, "budget_exhausted")):
        answer = await host.ask(headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, code)
    assert host.replicas("ingress") != [dying]


async def test_keys_and_usage_are_in_postgresql_and_in_no_file(host: OneHost) -> None:
    async with host.tables() as database:
        assert {row.key.name for row in await Keys(database).list_all()} >= {"three", "tendril"}
    assert list(host.data.glob("*.db")) == []


async def test_a_ray_of_our_own_listens_on_loopback_only(host: OneHost) -> None:
    below = [psutil.Process(host.process.pid), *host.ray()]
    listening = [
        (" ".join(process.cmdline()), socket.laddr.ip)
        for process in below
        for socket in process.net_connections("inet")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > len(host.replicas("ingress"))
    elsewhere = [each for each in listening if not _is_loopback(each[1])]
    assert elsewhere == []


async def test_a_response_that_died_with_its_process_is_not_found(host: OneHost) -> None:
    headers = await host.key(Key("bereaved"))
    async with host.openai(headers) as openai:
        made = await openai.responses.create(model="terra", input="hello you")
        assert await openai.responses.retrieve(made.id) == made
        (dying,) = host.replicas("ingress")
        dying.kill()
        with pytest.raises(NotFoundError, match="lost"):
            await openai.responses.retrieve(made.id)
        again = await openai.responses.create(model="terra", input="hello you")
        assert await openai.responses.retrieve(again.id) == again


async def test_ctrl_c_in_the_middle_of_an_answer_leaves_nothing_of_ray(host: OneHost) -> None:
    headers = await host.key(Key("last"))
    host.script.hang("so much")
    async with host.http.stream(
        "POST", CHAT, json={**HELLO, "stream": True}, headers=headers
    ) as answer:
        assert await anext(answer.aiter_lines())
        below, session = host.ray(), host.session()
        assert len(host.replicas("ingress")) == 1
        assert (session / "logs").is_dir()
        os.killpg(host.process.pid, signal.SIGINT)  # as a terminal does
        async with asyncio.timeout(STARTING):
            said = b"".join(await host.process.communicate()).decode()
    assert host.process.returncode == 0, said
    assert "failed" not in said
    assert not session.exists()
    await gone(below)
    assert (host.data / "ray-token").stat().st_mode & 0o777 == 0o600


def _is_loopback(address: str) -> bool:
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


async def _until_written(host: OneHost, tendril: str, requests: int) -> None:
    """Return when so many requests of a key today are in the database. Raises TimeoutError."""
    today = datetime.now(UTC).date()
    async with asyncio.timeout(PATIENCE), host.tables() as database:
        while True:
            rows = await UsageTable(database).read(today, today, tendril)
            if sum(amount.requests for _, amount in rows) >= requests:
                return
            await asyncio.sleep(0.1)  # written by another process
