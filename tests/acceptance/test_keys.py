"""Keys that are made while everything runs: nobody who is at home is locked out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.harnesses.core.launcher.test_up import FREE, answered, up
from tests.kit.command import begun, line_with, terrarium
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.server_keys import bearer, until_status


async def test_a_key_made_while_it_runs_locks_out_nobody_at_home(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, up(tmp_path, script) as running:
        url = running.address("agent server")
        async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as http:
            await until_status(http, 200, {})  # open to all on this machine until then
            made = await terrarium("keys", "create", "bob", "--data", ".", cwd=tmp_path)
            await until_status(http, 401, {})
            await until_status(http, 200, bearer(made.out.strip()))
            script.say("Still here.")
            await answered(running.irc_port, "ada", "Still here.")
            await terrarium("keys", "revoke", "bob", "--data", ".", cwd=tmp_path)
            await until_status(http, 401, bearer(made.out.strip()))
        script.say("And still.")
        await answered(running.irc_port, "eve", "And still.")
        script.say("Hello, owner.")
        talk = await terrarium("chat", "--data", ".", cwd=tmp_path, said="hello\n")
        assert talk.out == "Hello, owner.\n"
        looked = await terrarium("doctor", "--data", ".", cwd=tmp_path, MODEL_UPSTREAM=script.url)
        assert looked.status == 0, looked.out
        address = json.loads((tmp_path / "run" / "up.json").read_text())["server"]
        same = {"MODEL_UPSTREAM": script.url, "AGENT_API_URL": f"{address}/v1"}
        looked = await terrarium("doctor", "--data", ".", cwd=tmp_path, **same)
        assert looked.status == 0, looked.out
        wrong = {"MODEL_UPSTREAM": script.url, "AGENT_API_KEY": "wrong"}
        looked = await terrarium("doctor", "--data", ".", cwd=tmp_path, **wrong)
        assert looked.status == 1
        assert "rejects the key; correct AGENT_API_KEY" in looked.out
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0
        assert not (tmp_path / "run" / "up.json").exists()
        used = await terrarium("keys", "list", "--data", ".", cwd=tmp_path)
        assert {line.split()[1] for line in used.out.split("\n\n")[1].splitlines()[1:]} == {
            "irc",
            "local",
        }
        async with up(tmp_path, script) as again:
            script.say("Back again.")
            await answered(again.irc_port, "ada", "Back again.")
            again.process.send_signal(signal.SIGINT)
            assert await again.ended() == 0


async def test_each_tendril_has_a_key_of_its_own_and_none_has_the_admins(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        command = begun(
            *("up", "--data", "."), cwd=tmp_path, MODEL_UPSTREAM=script.url, SERVER_ADMIN_KEY="boss"
            "-of-this-machine", **FREE
        )  # fmt: skip
        async with command as process:
            await line_with(process.stdout, "ready")
            children = psutil.Process(process.pid).children(recursive=True)
            environments = {
                child.cmdline()[-3]: child.environ()
                for child in children
                if "run" in child.cmdline()
            }
            assert set(environments) == {"irc", "web", "cron"}
            keys = {name: each["AGENT_API_KEY"] for name, each in environments.items()}
            assert len(set(keys.values())) == 3
            assert not [each for each in environments.values() if "boss" in str(each)]
            file = tmp_path / "run" / "up.json"
            assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
            found = json.loads(file.read_text())
            assert found["key"] not in keys.values()
            async with httpx2.AsyncClient(base_url=found["server"], timeout=PATIENCE) as http:
                await until_status(http, 401, {})
                for key in (*keys.values(), found["key"]):
                    await until_status(http, 200, bearer(key))
                body = {"messages": [{"role": "user", "content": "hm"}]}
                await http.post("/v1/chat/completions", json=body, headers=bearer(keys["cron"]))
                metrics = (await http.get("/metrics")).text
                listed: dict[str, str] = {}
                while set(listed) != set(keys):
                    await asyncio.sleep(0.05)
                    answer = await http.get("/v1/tendrils", headers=bearer(found["key"]))
                    listed = {each["name"]: each["key"] for each in answer.json()["data"]}
            assert 'priority="background",tendril="cron"' in metrics
            assert listed == {name: name for name in keys}
            process.send_signal(signal.SIGTERM)
            await process.communicate()


@pytest.mark.parametrize(
    ("status", "settings", "waiting", "named"),
    [
        (
            200,
            {"SERVER_ADMIN_KEY": "a-secret-of-mine", "AGENT_API_KEY": "another-one"},
            "keys create NAME",
            "AGENT_API_KEY",
        ),
        (404, {}, "the model does not answer", "MODEL_UPSTREAM"),
    ],
    ids=["refused key", "no model server"],
)
async def test_what_keeps_it_from_being_ready_is_told_instead(
    status: int, settings: dict[str, str], waiting: str, named: str, tmp_path: Path
) -> None:
    async with ScriptedOpenAI() as script:
        script.default = Answer("no such page", status=status)
        settings = {"MODEL_UPSTREAM": script.url, **settings, **FREE}
        async with begun("up", "--data", ".", cwd=tmp_path, **settings) as process:
            told = await line_with(process.stderr, waiting)
            assert named in told
            assert script.url in told or status == 200
            process.send_signal(signal.SIGTERM)
            out, _ = await process.communicate()
            assert out == b""
