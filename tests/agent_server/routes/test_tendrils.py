"""The list of tendrils: who has reported itself lately, by which key."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from agent_server.tendril_registry import REPORT_TIMEOUT
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import room_tendril, rooms_config

REPORT = {"state": "ready", "tools": ["cups"], "pending": 1, "tokens_today": 7} | {
    "counters": {"cups": 2.0},
    "gauges": {},
    "disk_trouble": False,
}


async def test_a_tendril_that_reports_itself_is_listed() -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        assert (await http.get("/v1/tendrils")).json() == {"object": "list", "data": []}
        assert (await http.put("/v1/tendrils/kettle", json=REPORT)).status_code == 204
        (listed,) = (await http.get("/v1/tendrils")).json()["data"]
        assert listed.pop("seconds_ago") < REPORT_TIMEOUT
        assert listed == {"name": "kettle", "key": "anonymous"} | REPORT


async def test_a_report_that_is_wrong_is_refused_with_its_field() -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        answer = await http.put("/v1/tendrils/kettle", json=REPORT | {"pending": -1})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "pending")
        assert (await http.put("/v1/tendrils/a%20b", json=REPORT)).status_code == 400
        assert (await http.get("/v1/tendrils")).json()["data"] == []


async def test_a_running_tendril_reports_itself(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}) as url,
        httpx2.AsyncClient(base_url=url) as http,
        room_tendril(rooms_config(tmp_path, url)),
    ):
        while not (data := (await http.get("/v1/tendrils")).json()["data"]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        (listed,) = data
        assert (listed["name"], listed["state"], listed["tools"]) == ("rooms", "ready", ["cups"])
