"""The list of tendrils: who has reported itself lately, by which key, and how long it is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from agent_server.server_state import (
    MAX_TENDRILS,
    REPORT_TIMEOUT,
    TendrilRegistry,
    TendrilReport,
)
from storage.usage.api_keys import Key
from tests.kit.agent_server import agent_client, agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.room_tendril import room_tendril, rooms_config
from tests.kit.server_keys import bearer, key_table, until_status

REPORT = {"state": "ready", "tools": ["cups"], "pending": 1, "tokens_today": 7} | {
    "asked_about": "tea",
    "counters": {"cups": 2.0},
    "gauges": {},
    "disk_trouble": False,
}


async def test_a_report_lists_its_tendril_unless_it_is_wrong() -> None:
    async with ScriptedOpenAI() as script, agent_client({"upstream": script.url}) as http:
        assert (await http.get("/v1/tendrils")).json() == {"object": "list", "data": []}
        assert (await http.put("/v1/tendrils/kettle", json=REPORT)).status_code == 204
        (listed,) = (await http.get("/v1/tendrils")).json()["data"]
        assert listed.pop("seconds_ago") < REPORT_TIMEOUT
        assert listed == {"name": "kettle", "key": "anonymous"} | REPORT
        answer = await http.put("/v1/tendrils/lamp", json=REPORT | {"pending": -1})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "pending")
        assert (await http.put("/v1/tendrils/a%20b", json=REPORT)).status_code == 400
        assert len((await http.get("/v1/tendrils")).json()["data"]) == 1


async def test_an_issued_key_reports_and_sees_the_tendril_of_its_name_only(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_client({"upstream": script.url}, {"admin_key": "master"}, tmp_path) as http,
        key_table(tmp_path) as table,
    ):
        made = {name: bearer(await table.create(Key(name))) for name in ("kettle", "lamp")}
        await until_status(http, 200, made["lamp"])
        for name, headers in made.items():
            path = f"/v1/tendrils/{name}"
            assert (await http.put(path, json=REPORT, headers=headers)).status_code == 204
        answer = await http.put("/v1/tendrils/irc", json=REPORT, headers=made["lamp"])
        assert (answer.status_code, answer.json()["error"]["param"]) == (403, "name")
        for headers, seen in (
            (made["kettle"], ["kettle"]),
            (made["lamp"], ["lamp"]),
            (bearer("master"), ["kettle", "lamp"]),
        ):
            listed = (await http.get("/v1/tendrils", headers=headers)).json()["data"]
            assert [each["name"] for each in listed] == seen


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
        assert (listed["name"], listed["state"]) == ("rooms", "ready")
        assert {"cups", "search_log"} <= set(listed["tools"])  # its own, and those of any question


READY = TendrilReport(state="ready")


def test_a_tendril_that_is_silent_for_long_is_gone_and_keys_are_apart() -> None:
    now = 0.0
    registry = TendrilRegistry(lambda: now)
    registry.record("irc", "irc", READY)
    now = REPORT_TIMEOUT / 2
    registry.record("irc", "mallory", TendrilReport(state="waiting"))
    assert [(each.key, each.state, each.seconds_ago) for each in registry.present()] == [
        ("irc", "ready", REPORT_TIMEOUT / 2),
        ("mallory", "waiting", 0),
    ]
    now = REPORT_TIMEOUT + 1
    assert [each.key for each in registry.present()] == ["mallory"]


def test_one_key_cannot_crowd_out_the_tendrils_of_others() -> None:
    registry = TendrilRegistry()
    for number in range(MAX_TENDRILS):
        assert registry.record(f"t{number}", "mallory", READY)
    assert not registry.record("one-more", "mallory", READY)
    assert registry.record("t0", "mallory", READY)
    assert registry.record("irc", "irc", READY)
