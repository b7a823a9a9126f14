"""`terrarium server --ray` on one host: two servers share accounts, responses and tendrils.

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
from typing import Any

import httpx2
import psutil
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from agent_server.settings.models import UPSTREAM_SLOTS
from harnesses.core.tendril.turn import TurnRequest
from storage.db.address import PostgresSchema
from storage.db.database import Database
from storage.runs.reader import newest_runs
from storage.usage.api_keys import Key, Keys
from storage.usage.usage import UsageTable
from terrarium.config import Config
from tests.kit.command import begun
from tests.kit.gone import gone
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.postgres import postgres_database
from tests.kit.ray_cluster import STARTING, replicas_below, require_ray, until_serving
from tests.kit.server_keys import bearer, until_status
from tests.kit.small_tendril import SmallTendril

require_ray()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("only_ray"),
    pytest.mark.asyncio(loop_scope="module"),
]

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello you"}]}  # three tokens with "ok"
ADMIN = bearer("the admin's key")
SERVERS = 2
SESSIONS = 20
"""So many conversations that each server has some of them."""

SETTINGS = f"""
[server]
admin_key = "the admin's key"

[ray]
ingress_replicas = {SERVERS}

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

    async def ask(self, session: int, headers: Mapping[str, str]) -> httpx2.Response:
        """Ask as one of many conversations."""
        mine = {**_talk(session), **headers}
        return await self.http.post(CHAT, json=HELLO, headers=mine)

    async def key(self, key: Key) -> dict[str, str]:
        """Issue a key in the database, and return its header when every server knows it."""
        async with self.tables() as database:
            made = bearer(await Keys(database).create(key))
        for session in range(SESSIONS):
            await until_status(self.http, 200, {**made, "x-session-id": f"look/{session}"})
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

    async def usage(self, session: int) -> dict[str, Any]:
        """The answer of /usage from one of the servers."""
        answer = await self.http.get("/usage", headers={**ADMIN, "x-session-id": f"u/{session}"})
        found: dict[str, Any] = answer.json()
        return found

    async def until_metric(self, name: str, value: float, session: int) -> None:
        """Return when one of the servers has this metric of its model. Raises TimeoutError."""
        line = f'{name}{{model="terra"}} {value:.1f}'
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.http.get("/metrics", headers={"x-session-id": f"m/{session}"})
                if line in answer.text.splitlines():
                    return
                await asyncio.sleep(0.1)

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


async def test_a_key_has_its_quota_once_whichever_server_it_asks(host: OneHost) -> None:
    headers = await host.key(Key("five", requests_per_minute=5))
    answers = [await host.ask(session, headers) for session in range(SESSIONS)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * (SESSIONS - 5)
    assert answers[-1].json()["error"]["code"] == "quota_exceeded"
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_a_person_has_their_budget_once_whichever_server_is_asked(host: OneHost) -> None:
    headers = await host.key(Key("tendril"))
    for person in ("ada", "bob"):
        theirs = {**headers, "x-person": person}
        assert (await host.ask(0, theirs)).status_code == 200
        await _until_refused(host, theirs)
        answers = [await host.ask(session, theirs) for session in range(SESSIONS)]
        assert {answer.status_code for answer in answers} == {429}
        assert answers[0].json()["error"]["code"] == "budget_exhausted"


async def test_a_key_keeps_what_it_has_used_today_when_the_queue_dies(host: OneHost) -> None:
    headers = await host.key(Key("three", tokens_per_day=3))
    assert (await host.ask(0, headers)).status_code == 200
    async with asyncio.timeout(PATIENCE):
        while not await _written(host, "three"):  # noqa: ASYNC110 - written by itself
            await asyncio.sleep(0.1)
    (dying,) = host.replicas("admission")
    dying.kill()
    answers = [await host.ask(session, headers) for session in range(SESSIONS)]
    assert {answer.status_code for answer in answers} == {429}


async def test_every_server_tells_the_sum_of_all_usage(host: OneHost) -> None:
    headers = await host.key(Key("summed"))
    for session in range(SESSIONS):
        assert (await host.ask(session, headers)).status_code == 200
    async with asyncio.timeout(PATIENCE):
        while await _written(host, "summed") < SESSIONS:  # noqa: ASYNC110 - each writes by itself
            await asyncio.sleep(0.1)
    for session in range(SESSIONS):
        rows = (await host.usage(session))["data"]
        assert [row["requests"] for row in rows if row["tendril"] == "summed"] == [SESSIONS]


async def test_keys_and_usage_are_in_postgresql_and_in_no_file(host: OneHost) -> None:
    async with host.tables() as database:
        assert {row.key.name for row in await Keys(database).list_all()} >= {"five", "summed"}
    assert await _written(host, "summed") == SESSIONS
    assert list(host.data.glob("*.db")) == []


async def test_a_tendril_beside_it_has_its_runs_in_the_same_database(
    host: OneHost, tmp_path: Path
) -> None:
    key = (await host.key(Key("small")))["authorization"].removeprefix("Bearer ")
    agent = {"api_url": str(host.http.base_url), "api_key": key}
    tables = {"agent": agent, "storage": {"url": host.database}}
    tendril = SmallTendril(Config(tables, None, tmp_path))
    running = asyncio.create_task(tendril.run())
    async with asyncio.timeout(PATIENCE):
        await tendril.is_ready.wait()
        turn = TurnRequest(conversation="pond", who="ada", text="hello you")
        assert (await tendril.turn(turn)).text == "ok"
    running.cancel()
    await asyncio.wait({running})
    (run,) = await newest_runs(PostgresSchema(host.database, "small"), 10)
    assert (run.tendril, run.outcome) == ("small", "answered")
    assert not any(tmp_path.glob("*.db"))  # noqa: ASYNC240


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


async def test_metrics_of_any_server_tell_the_places_and_requests_of_the_shared_queue(
    host: OneHost,
) -> None:
    headers = await host.key(Key("watched"))
    host.script.hang("so much")
    async with host.http.stream(
        "POST", CHAT, json={**HELLO, "stream": True}, headers=headers
    ) as answer:
        lines = answer.aiter_lines()  # one that is dropped would end the answer
        assert await anext(lines)
        for session in range(SESSIONS):
            await host.until_metric("terrarium_running", 1, session)
            await host.until_metric("terrarium_places", UPSTREAM_SLOTS, session)
    for session in range(SESSIONS):
        await host.until_metric("terrarium_running", 0, session)


async def test_a_response_is_continued_and_deleted_through_any_server(host: OneHost) -> None:
    headers, other = await host.key(Key("responder")), await host.key(Key("curious"))
    async with host.openai(headers) as openai, host.openai(other) as stranger:
        first = await openai.responses.create(
            model="terra", input="hello you", extra_headers=_talk(0)
        )
        for session in range(SESSIONS):
            found = await openai.responses.retrieve(first.id, extra_headers=_talk(session))
            assert found == first
            with pytest.raises(NotFoundError):
                await stranger.responses.retrieve(first.id, extra_headers=_talk(session))
        last = first
        for session in range(SESSIONS):
            async with openai.responses.stream(
                model="terra",
                input="and then",
                previous_response_id=last.id,
                extra_headers=_talk(session),
            ) as stream:
                last = await stream.get_final_response()
        assert len(host.script.requests[-1]["messages"]) == 2 * SESSIONS + 1
        await openai.responses.delete(first.id, extra_headers=_talk(0))
        for session in range(SESSIONS):
            with pytest.raises(BadRequestError, match="no response"):
                await openai.responses.create(
                    model="terra",
                    input="x",
                    previous_response_id=first.id,
                    extra_headers=_talk(session),
                )


async def test_a_tendril_that_reports_once_is_listed_by_every_server(host: OneHost) -> None:
    headers = await host.key(Key("kettle"))
    report = {"state": "ready", "tools": ["cups"], "pending": 3}
    await host.http.put("/v1/tendrils/kettle", json=report, headers={**headers, **_talk(0)})
    line = 'terrarium_tendril_pending{key="kettle",tendril="kettle"} 3.0'
    for session in range(SESSIONS):
        theirs = {**headers, **_talk(session)}
        listed = (await host.http.get("/v1/tendrils", headers=theirs)).json()["data"]
        assert [each["tools"] for each in listed if each["key"] == "kettle"] == [["cups"]]
        assert line in (await host.http.get("/metrics", headers=theirs)).text.splitlines()


async def test_while_what_the_servers_share_is_away_answers_arrive_and_the_rest_is_503(
    host: OneHost,
) -> None:
    headers = await host.key(Key("patient"))
    (away,) = host.replicas("admission")
    async with host.openai(headers) as openai:
        before = await openai.responses.create(model="terra", input="hello you")
        host.script.think("late")
        arrived = len(host.script.requests) + 1
        answering = asyncio.create_task(openai.responses.create(model="terra", input="are you up"))
        await host.script.arrived(arrived)
        away.suspend()
        try:
            host.script.release()
            report, found, metrics, answer = await asyncio.gather(
                host.http.put("/v1/tendrils/kettle", json={"state": "ready"}, headers=headers),
                host.http.get(f"/v1/responses/{before.id}", headers=headers),
                host.http.get("/metrics"),
                answering,
            )
            assert answer.output_text == "late"
            for refused in (report, found):
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "engine_unavailable"
            assert metrics.status_code == 200
            assert "terrarium_places" in metrics.text
            assert "terrarium_tendril_pending{" not in metrics.text
        finally:
            away.resume()
            host.script.hold()
        assert await openai.responses.retrieve(before.id) == before


async def test_a_response_that_died_with_its_process_is_not_found(host: OneHost) -> None:
    headers = await host.key(Key("bereaved"))
    async with host.openai(headers) as openai:
        made = await openai.responses.create(model="terra", input="hello you")
        (dying,) = host.replicas("admission")
        dying.kill()
        address = f"/v1/responses/{made.id}"
        async with asyncio.timeout(PATIENCE):
            while (answer := await host.http.get(address, headers=headers)).status_code != 404:
                assert answer.status_code == 503
        assert "lost" in answer.json()["error"]["message"]
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
        assert len(host.replicas("ingress")) == SERVERS
        assert (session / "logs").is_dir()
        os.killpg(host.process.pid, signal.SIGINT)  # as a terminal does
        async with asyncio.timeout(STARTING):
            said = b"".join(await host.process.communicate()).decode()
    assert host.process.returncode == 0, said
    assert "failed" not in said
    assert not session.exists()
    await gone(below)
    assert (host.data / "ray-token").stat().st_mode & 0o777 == 0o600


def _talk(session: int) -> dict[str, str]:
    return {"x-session-id": f"talk/{session}"}


def _is_loopback(address: str) -> bool:
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


async def _until_refused(host: OneHost, headers: Mapping[str, str]) -> None:
    """Return when the account has heard what the last answer has cost. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while (await host.ask(0, headers)).status_code != 429:
            pass


async def _written(host: OneHost, tendril: str) -> int:
    """The requests of a key today that are in the database."""
    today = datetime.now(UTC).date()
    async with host.tables() as database:
        rows = await UsageTable(database).read(today, today, tendril)
    return sum(amount.requests for _, amount in rows)
