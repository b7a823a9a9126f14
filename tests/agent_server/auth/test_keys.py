"""Who may use the agent server, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from storage.usage.api_keys import Key
from tests.kit.agent_server import CHAT, HELLO, agent_client
from tests.kit.command import terrarium
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.server_keys import bearer, key_table, make_keys, until_metric, until_status


@asynccontextmanager
async def client(
    script: ScriptedOpenAI, data: Path, **tables: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    server = tables.pop("server", {})
    async with agent_client({"upstream": script.url}, server, data, **tables) as http:
        yield http


async def test_keys_count_in_a_running_server_as_soon_as_they_are_made_or_revoked(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with client(script, tmp_path) as http, key_table(tmp_path) as keys:
        assert (await http.get("/v1/models")).status_code == 200
        irc = bearer(await keys.create(Key("irc")))
        await until_status(http, 401, {})
        assert (await http.post(CHAT, json=HELLO, headers=irc)).status_code == 200
        assert (await http.get("/v1/models", headers=bearer("trm_guess"))).status_code == 401
        await keys.revoke("irc")
        await until_status(http, 401, irc)
        assert (await http.get("/v1/models")).status_code == 401, "it must not open again"


async def test_the_command_makes_and_revokes_keys(script: ScriptedOpenAI, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with client(script, data, usage={"prices": {"terra": {"prompt": 1_000_000}}}) as http:
        made = await terrarium("keys", "create", "irc", "--weight", "3", cwd=tmp_path)
        assert made.status == 0
        assert "answers nobody without a key" in made.err
        assert "in the last 7 days" not in made.err  # nobody has used it so
        irc = bearer(made.out.strip())
        await until_status(http, 200, irc)
        await until_status(http, 401, {})
        assert (await http.post(CHAT, json=HELLO, headers=irc)).status_code == 200
        await http.get("/usage", headers=irc)  # writes what there is
        listed = await terrarium("keys", "list", cwd=tmp_path)
        key, *_, use = listed.out.splitlines()[1:]
        assert key.split()[:4] == ["irc", made.out[:8] + "...", "interactive", "3"]
        assert use.split()[1:] == ["irc", "terra", "1", "2", "0", "1", "2.0000"]
        again = await terrarium("keys", "create", "irc", cwd=tmp_path)
        assert (again.status, again.out) == (1, "")
        assert (await terrarium("keys", "revoke", "irc", cwd=tmp_path)).status == 0
        await until_status(http, 401, irc)
    assert (await terrarium("keys", "revoke", "irc", cwd=tmp_path)).status == 1
    assert (await terrarium("keys", "create", "../x", cwd=tmp_path)).status == 2


async def test_who_was_answered_without_a_key_is_told_before_the_first_is_made(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with client(script, tmp_path / "data") as http, key_table(tmp_path / "data") as keys:
        made = bearer((await keys.replace_launch_keys([Key("irc")]))["irc"])
        assert (await http.post(CHAT, json=HELLO)).status_code == 200
        async with asyncio.timeout(PATIENCE):
            while (await http.get("/usage", headers=made)).json()["data"] == []:
                assert (await http.post(CHAT, json=HELLO, headers=made)).status_code == 200
        first = await terrarium("keys", "create", "bob", cwd=tmp_path)
        assert "It has answered 1 request without a key in the last 7 days" in first.err
        await until_status(http, 401, {})
        await until_status(http, 200, made)
        assert (await http.get("/v1/models", headers=made)).status_code == 200


async def test_everybody_sees_own_use_the_admin_all(script: ScriptedOpenAI, tmp_path: Path) -> None:
    admin = bearer("master")
    async with client(script, tmp_path, server={"admin_key": "master"}) as http:
        made = await make_keys(http, tmp_path, Key("irc"), Key("web"))
        for headers in (made["irc"], made["irc"], made["web"], admin):
            assert (await http.post(CHAT, json=HELLO, headers=headers)).status_code == 200
        own = (await http.get("/usage", headers=made["irc"])).json()
        everybody = (await http.get("/usage", headers=admin)).json()
        assert (await http.get("/usage")).status_code == 401
    assert [(row["tendril"], row["requests"]) for row in own["data"]] == [("irc", 2)]
    assert own["total"] == {
        "requests": 2,
        "prompt_tokens": 4,
        "cached_tokens": 0,
        "completion_tokens": 2,
        "cost": 0.0,
    }
    assert [row["tendril"] for row in everybody["data"]] == ["admin", "irc", "web"]
    assert everybody["total"]["requests"] == 4


async def test_a_configured_key_closes_the_server(script: ScriptedOpenAI, tmp_path: Path) -> None:
    secrets = {"irc": "secret of irc", "web": "secret of web"}
    async with client(script, tmp_path, server={"keys": secrets}) as http:
        for headers in ({}, bearer("secret of nobody")):
            assert (await http.get("/v1/models", headers=headers)).status_code == 401
        for secret in secrets.values():
            answer = await http.post(CHAT, json=HELLO, headers=bearer(secret))
            assert answer.status_code == 200
        used = (await http.get("/usage", headers=bearer(secrets["irc"]))).json()
        rows = [(row["tendril"], row["requests"]) for row in used["data"]]
        assert rows == [("irc", 1), ("web", 1)], "as the operator may see all"
        made = await make_keys(http, tmp_path, Key("bob"))
        assert (await http.get("/v1/models", headers=made["bob"])).status_code == 200


async def test_a_request_only_lowers_its_priority(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with client(script, tmp_path) as http:
        made = await make_keys(http, tmp_path, Key("cron", priority="background"), Key("irc"))
        for name, asked in (("cron", "interactive"), ("irc", "background"), ("irc", "interactive")):
            headers = made[name] | {"x-priority": asked}
            assert (await http.post(CHAT, json=HELLO, headers=headers)).status_code == 200
        count = "terrarium_wait_seconds_count"
        for name, got in (("cron", "background"), ("irc", "background"), ("irc", "interactive")):
            labels = f'model="terra",priority="{got}",tendril="{name}"'
            await until_metric(http, f"{count}{{{labels}}} 1.0")
        assert 'priority="interactive",tendril="cron"' not in (await http.get("/metrics")).text


async def test_limits_change_while_the_server_runs(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with client(script, tmp_path / "data") as http:
        limits = ("--requests-per-minute", "1", "--weight", "3", "--expires", "7")
        made = await terrarium("keys", "create", "irc", *limits, cwd=tmp_path)
        headers = bearer(made.out.strip())
        # Until it knows of its first key, the server is open and counts nobody.
        await until_status(http, 401, {})
        asked = partial(http.post, CHAT, json=HELLO, headers=headers)
        assert [(await asked()).status_code, (await asked()).status_code] == [200, 429]
        options = ("--requests-per-minute", "0", "--parallel", "2")
        assert (await terrarium("keys", "set", "irc", *options, cwd=tmp_path)).status == 0
        async with asyncio.timeout(PATIENCE):
            while (await asked()).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        async with key_table(tmp_path / "data") as keys:
            (row,) = await keys.list_all()
            assert row.key.expires is not None
            assert timedelta(days=6) < row.key.expires - datetime.now(UTC) < timedelta(days=7)
            assert replace(row.key, expires=None) == Key("irc", weight=3, parallel=2)
            # As if a week had passed.
            await keys.change(replace(row.key, expires=datetime.now(UTC)))
        await until_status(http, 401, headers)
        assert "expired" in (await http.get("/v1/models", headers=headers)).text
    assert (await terrarium("keys", "set", "nobody", cwd=tmp_path)).status == 1


async def test_a_key_is_told_the_rest_of_its_quotas(script: ScriptedOpenAI, tmp_path: Path) -> None:
    async with client(script, tmp_path) as http:
        free, limited = Key("free"), Key("limited", requests_per_minute=2, tokens_per_minute=50)
        made = await make_keys(http, tmp_path, free, limited)
        for status, left in ((200, "1"), (200, "0"), (429, "0")):
            answer = await http.post(CHAT, json=HELLO, headers=made["limited"])
            assert answer.status_code == status
            assert answer.headers["x-ratelimit-limit-requests"] == "2"
            assert answer.headers["x-ratelimit-remaining-requests"] == left
            assert 59 <= int(answer.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 61
            assert int(answer.headers["openai-processing-ms"]) >= 0
        seen = (await http.get("/v1/models", headers=made["limited"])).headers
        assert (seen["x-ratelimit-limit-tokens"], seen["x-ratelimit-remaining-tokens"]) == (
            "50",
            "44",
        )
        answer = await http.post(CHAT, json=HELLO, headers=made["free"])
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


async def test_metrics_of_all_keys_are_for_this_machine_and_the_operator(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    keys = {"admin_key": "master", "keys": {"prometheus": "a-key-of-the-operator"}}
    elsewhere = {"x-forwarded-for": "192.0.2.7"}
    async with client(script, tmp_path, server=keys) as http:
        async with key_table(tmp_path) as table:
            issued = bearer(await table.create(Key("alice")))
        await until_status(http, 200, issued)
        for headers, status in (
            ({}, 200),
            ({"host": "evil.example"}, 401),
            (elsewhere, 401),
            ({"x-forwarded-for": "127.0.0.1"}, 401),
            (elsewhere | issued, 403),
            (elsewhere | bearer("a-key-of-the-operator"), 200),
            (elsewhere | bearer("master") | {"host": "terrarium:8080"}, 200),
        ):
            answer = await http.get("/metrics", headers=headers)
            assert answer.status_code == status, headers
            assert ("terrarium_requests_total" in answer.text) == (status == 200)
