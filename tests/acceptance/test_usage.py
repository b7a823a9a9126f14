"""Shares, budgets and usage of tendrils under plain `terrarium up`, with no key made by hand."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.harnesses.core.launcher.test_up import Running, answered, up
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.server_keys import bearer

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

SPENT = "My budget for today is used up; please ask again tomorrow."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def script() -> AsyncIterator[ScriptedOpenAI]:
    """The model of `running`."""
    async with ScriptedOpenAI() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, script: ScriptedOpenAI
) -> AsyncIterator[Running]:
    """An `up` without limits, whose model answers one request at a time."""
    data = tmp_path_factory.mktemp("up")
    (data / "terrarium.toml").write_text("[model]\nslots = 1\n")
    async with up(data, script) as found:
        yield found
        found.process.send_signal(signal.SIGINT)
        assert await found.ended() == 0


async def ask_on_the_web(http: httpx2.AsyncClient, text: str) -> dict[str, Any]:
    """Ask in the chat box; return the last line of the answer."""
    answer = await http.post("/chat", json={"text": text})
    assert answer.status_code == 200, answer.text
    last: dict[str, Any] = json.loads(answer.text.splitlines()[-1])
    return last


async def question(person: IrcClient, words: str, answer: str) -> None:
    """Ask on the channel, and wait for the answer."""
    await person.say("#terrarium", f".terrarium {words}")
    await person.expect(rf"PRIVMSG #terrarium :\S+: {re.escape(answer)}")


async def test_usage_is_known_by_tendril_and_purpose(
    running: Running, script: ScriptedOpenAI
) -> None:
    script.say("I can listen.")
    await answered(running.irc_port, "ada", "I can listen.")
    web, server = running.address("web"), running.address("agent server")
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        script.say("I can read.")
        asked = await http.post(f"{web}/chat", json={"text": "hello?"})
        assert "I can read." in asked.text
        usage = (await http.get(f"{server}/usage")).json()
        used = {row["tendril"]: row["prompt_tokens"] for row in usage["data"]}
        assert used["irc"] > 0
        assert used["web"] > 0

        async def both_are_shown() -> bool:
            page = (await http.get(f"{web}/tendrils")).text
            return len(re.findall(r"tokens today: answer \d+", page)) == 2

        await until(both_are_shown)  # each ten seconds


async def test_who_has_used_up_a_budget_is_told_so_and_others_are_answered(tmp_path: Path) -> None:
    (tmp_path / "terrarium.toml").write_text(
        '[usage.budgets.people]\nper = "person"\ntendril = "irc"\ntokens_per_day = 1\n'
        '[usage.budgets.web]\ntendril = "web"\ncost_per_day = 0.001\n'
        "[usage.prices.terra]\nprompt = 1000\n"
    )
    async with ScriptedOpenAI() as script, up(tmp_path, script) as running:
        script.default = Answer("I can listen.")
        await answered(running.irc_port, "eve", "I can listen.")
        async with (
            irc_client(running.irc_port, "ada") as ada,
            irc_client(running.irc_port, "bob") as bob,
        ):
            for person in (ada, bob):
                await person.join("#terrarium")
            await question(ada, "tell me a story", "I can listen.")
            await question(ada, "tell me another one", SPENT)
            await question(bob, "tell me a third one", "I can listen.")
        async with httpx2.AsyncClient(
            base_url=running.address("web"), trust_env=False, timeout=PATIENCE
        ) as http:
            assert (await ask_on_the_web(http, "hello?"))["ok"]
            told = await ask_on_the_web(http, "and now?")
            assert (told["ok"], SPENT in told["html"]) == (False, True)
        running.process.send_signal(signal.SIGINT)
        assert await running.ended() == 0


async def test_a_flood_leaves_tendrils_their_share(
    running: Running, script: ScriptedOpenAI
) -> None:
    found, before = json.loads((running.data / "run" / "up.json").read_text()), len(script.requests)
    script.default = Answer("So much.", late=True)  # not before it is released
    body = {"messages": [{"role": "user", "content": "flood"}]}
    async with httpx2.AsyncClient(
        base_url=found["server"], trust_env=False, timeout=PATIENCE
    ) as http:

        async def flood() -> int:
            path, headers = "/v1/chat/completions", bearer(found["key"])
            return (await http.post(path, json=body, headers=headers)).status_code

        async def all_wait() -> bool:
            lines = (await http.get("/metrics")).text.splitlines()
            found = [line.split()[-1] for line in lines if "terrarium_waiting{" in line]
            return sum(map(float, found)) >= 40  # of 41 requests one runs

        async with asyncio.TaskGroup() as tasks:
            flooding = [tasks.create_task(flood()) for _ in range(40)]
            asking = tasks.create_task(answered(running.irc_port, "ada", "So much."))
            await until(all_wait)
            script.release()
            await asking
        assert {task.result() for task in flooding} == {200}
    asked = [request["messages"][-1]["content"] for request in script.requests[before:]]
    place = next(at for at, text in enumerate(asked) if "tell me a story" in text)
    assert place - asked.index("flood") <= 3
