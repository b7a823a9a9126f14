"""While PostgreSQL is away, probes and metrics say so, and nothing that is said is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.kit.command import terrarium
from tests.kit.irc_client import irc_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.postgres import postgres_server
from tests.kit.terrarium import terrarium_up


async def until(
    http: httpx2.AsyncClient, url: str, holds: Callable[[httpx2.Response], bool]
) -> None:
    """Wait until an answer is as expected."""
    async with asyncio.timeout(PATIENCE):
        while not holds(await http.get(url)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def shows(sample: str) -> Callable[[httpx2.Response], bool]:
    return lambda answer: sample in answer.text


@pytest.mark.slow
async def test_a_database_that_is_away_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    with postgres_server() as postgres:
        storage = {"STORAGE_URL": postgres.create("bot")}
        async with (
            ScriptedOpenAI() as script,
            terrarium_up(tmp_path, MODEL_UPSTREAM=script.url, **storage) as bot,
            httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http,
            irc_client(bot.irc_port, "ada") as ada,
        ):
            ready, metrics = f"{bot.server}/ready", f"{bot.server}/metrics"
            await ada.join("#terrarium")
            await until(http, ready, lambda answer: answer.json()["database"] == "ok")
            # No transaction is under way whose outcome would have to be asked for.
            await ada.say("#terrarium", "the sun is out")
            await until(http, f"{bot.web}/api/search?q=sun", shows("the sun is out"))
            postgres.kill()
            await ada.say("#terrarium", "the greenhouse pump starts at six")
            await until(http, ready, lambda answer: answer.json()["database"] == "away")
            await until(http, metrics, shows("terrarium_database_up 0.0"))
            await until(http, f"{bot.web}/health", lambda answer: answer.status_code == 503)
            for name in ("irc", "web"):
                sample = f'terrarium_tendril_disk_trouble{{key="{name}",tendril="{name}"}} 1.0'
                await until(http, metrics, shows(sample))
            page = await http.get(f"{bot.web}/api/channels")
            assert (page.status_code, page.headers["retry-after"]) == (503, "5")
            await ada.say("#terrarium", ".terrarium tell me a story about toads")
            await ada.expect("ada: I cannot reach my database")
            postgres.start()
            await until(http, ready, lambda answer: answer.json()["database"] == "ok")
            await until(http, f"{bot.web}/health", lambda answer: answer.status_code == 200)
        done = await terrarium("logs", "export", "--data", ".", cwd=tmp_path, **storage)
    assert done.out.count("the greenhouse pump starts at six") == 1
