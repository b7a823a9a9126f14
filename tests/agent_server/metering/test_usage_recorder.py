"""Usage rows: written beside the answers, never in their way."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_server.admission.scheduler import Scheduler
from agent_server.metering.metrics import Metrics
from tests.kit.agent_server import agent_client, until_ready
from tests.kit.command import begun, line_with
from tests.kit.data_files import server_path
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port

pytest_plugins = ("tests.kit.scripted_server",)

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello you"}]}


def written(data: Path) -> int:
    """The requests in the file's usage rows."""
    with closing(sqlite3.connect(server_path(data), timeout=PATIENCE)) as database:
        (count,) = database.execute("SELECT coalesce(sum(requests), 0) FROM usage").fetchone()
    return int(count)


async def until_written(data: Path, count: int) -> None:
    """Return when `count` requests are in the file. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(written, data) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert written(data) == count


async def requests_of(http: httpx2.AsyncClient) -> int:
    """The requests that /usage tells of."""
    answer = (await http.get("/usage")).json()
    total: dict[str, Any] = answer["total"]
    return int(total["requests"])


async def test_a_locked_file_loses_no_answer_or_row(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with agent_client({"upstream": script.url}, None, tmp_path) as http:
        with closing(sqlite3.connect(server_path(tmp_path), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                assert (await http.post(CHAT, json=HELLO)).status_code == 200
            assert await requests_of(http) == 3, "told from memory"
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
            assert written(tmp_path) == 0
            other.execute("ROLLBACK")
        await until_written(tmp_path, 4)
        assert await requests_of(http) == 4


async def test_a_full_disk_fails_no_answer_and_rows_are_written_when_there_is_room(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    port = free_port()
    settings = {"MODEL_UPSTREAM": script.url, "SERVER_PORT": str(port)}
    async with (
        begun("server", "--data", "data", cwd=tmp_path, **settings) as process,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http,
    ):
        await line_with(process.stderr, "server.listening")
        await until_ready(str(http.base_url).rstrip("/"))
        # No file of this process may grow: to SQLite that is a disk without room.
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, unlimited[1]))
        for _ in range(3):
            assert (await http.post(CHAT, json=HELLO)).status_code == 200
        await line_with(process.stderr, "usage.unwritten")
        assert (await http.post(CHAT, json=HELLO)).status_code == 200
        assert await requests_of(http) == 4
        assert "\nterrarium_disk_trouble 1.0" in (await http.get("/metrics")).text
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        await until_written(tmp_path / "data", 4)
        assert await requests_of(http) == 4  # it waits for a write that is going on
        assert "\nterrarium_disk_trouble 0.0" in (await http.get("/metrics")).text


async def test_cost_follows_the_price_table_and_the_end_loses_no_row(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    prices = {"terra": {"prompt": 10, "cached": 1, "completion": 100}}
    usage = {"currency": "EUR", "prices": prices}
    script.cached_tokens = 1
    script.say("one two three").say("four")
    long = {"messages": [{"role": "user", "content": "hello " * 40}]}
    async with agent_client({"upstream": script.url}, None, tmp_path, usage=usage) as http:
        for _ in range(2):  # the second finds the first in the cache
            assert (await http.post(CHAT, json=long)).status_code == 200
        answer = (await http.get("/usage")).json()
        wrong = await http.get("/usage", params={"since": "2026-02-02", "until": "2026-02-01"})
        assert (await http.post(CHAT, json=long)).status_code == 200
    assert written(tmp_path) == 3, "that of the last seconds as well, when the server stops"
    assert answer["currency"] == "EUR"
    (row,) = answer["data"]
    assert (row["tendril"], row["model"], row["cached_tokens"]) == ("anonymous", "terra", 1)
    assert row["cost"] == pytest.approx((79 * 10 + 1 * 1 + 4 * 100) / 1_000_000)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "since"


@pytest.mark.parametrize("wanted", ["false", "true"])
async def test_prompts_are_in_the_log_only_when_that_is_wanted(
    script: ScriptedOpenAI, tmp_path: Path, wanted: str
) -> None:
    port = free_port()
    settings = {
        "MODEL_UPSTREAM": script.url, "SERVER_PORT": str(port), "SERVER_LOG_PROMPTS": wanted,
        "TERRARIUM_LOG_LEVEL": "debug",
    }  # fmt: skip
    words = ("--log-level", "debug", "server", "--data", "data")
    async with begun(*words, cwd=tmp_path, **settings) as process:
        url = f"http://127.0.0.1:{port}"
        await line_with(process.stderr, "server.listening")
        await until_ready(url)
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            body = {"messages": [{"role": "user", "content": "my secret garden"}]}
            assert (await http.post(CHAT, json=body)).status_code == 200
            assert (await http.post(CHAT, json=body | {"n": "many"})).status_code == 400
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    assert ("secret garden" in (out + err).decode()) == (wanted == "true")
    lines = err.decode().splitlines()
    done = next(line for line in lines if f"route={CHAT} " in line and "status=200" in line)
    assert "tendril=anonymous" in done


def test_a_queue_that_was_replaced_under_its_name_leaves_the_gauges_to_its_successor() -> None:
    metrics, old = Metrics(), ExitStack()
    old.enter_context(metrics.watch_queue("terra", Scheduler(1)))
    with metrics.watch_queue("terra", Scheduler(2)):
        old.close()
        assert b'terrarium_slots{model="terra"} 2.0' in metrics.exposition()
    assert b'terra"' not in metrics.exposition()
