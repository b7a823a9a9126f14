"""`terrarium up` does the same with files and with PostgreSQL, whatever people do with it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest

from storage.db.address import Address, PostgresSchema
from tests.kit.command import terrarium
from tests.kit.irc_client import irc_client
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.stores import Stores
from tests.kit.terrarium import terrarium_up


def storage_of(address: Address) -> Mapping[str, str]:
    """Return the settings that say where everything is kept."""
    return {"STORAGE_URL": address.url} if isinstance(address, PostgresSchema) else {}


@pytest.mark.slow
async def test_asking_searching_reminding_and_forgetting(stores: Stores, tmp_path: Path) -> None:
    storage = storage_of(stores("irc"))
    async with ScriptedOpenAI() as script:
        settings = {"MODEL_UPSTREAM": script.url, **storage}
        async with (
            terrarium_up(tmp_path, **settings) as bot,
            httpx2.AsyncClient(base_url=bot.web, trust_env=False, timeout=PATIENCE) as http,
            http.stream("GET", "/api/stream") as stream,
            irc_client(bot.irc_port, "ada") as ada,
        ):
            tail = stream.aiter_lines()
            await ada.meet()
            await ada.say("#terrarium", "the greenhouse pump starts at six")
            await shown(tail, "the greenhouse pump starts at six")
            script.say("Toads live in ponds.")
            await ada.say("#terrarium", ".terrarium tell me a story about toads")
            await ada.expect("ada: Toads live in ponds")
            await ada.say("#terrarium", ".search pump")
            await ada.expect("ada: .*the greenhouse pump starts at six")
            found = (await http.get("/api/search", params={"q": "greenhou*"})).json()
            assert "the greenhouse pump starts at six" in [hit["text"] for hit in found["results"]]
            await ada.say("#terrarium", ".remind 1s to feed the toads")
            await ada.expect("PRIVMSG #terrarium :ada: .*feed the toads")
            await ada.say("#terrarium", ".remind 2h to close the window")
            await ada.expect("(?i)i will remind you")
        async with (
            terrarium_up(tmp_path, **settings) as bot,
            irc_client(bot.irc_port, "ada") as ada,
        ):  # all of it is there again
            await ada.join("#terrarium")
            await ada.settle()
            await ada.say("#terrarium", ".reminders")
            await ada.expect("close the window")
            await ada.say("#terrarium", ".search pump")
            await ada.expect("the greenhouse pump starts at six")
            await ada.say("#terrarium", ".forget me")
            asked = await ada.expect(r"write within two minutes: (\.forget me \w+)")
            await ada.say("#terrarium", asked[1])
            await ada.expect(r"Forgotten: \d+ events of yours")
        done = await terrarium(
            "logs", "export", "--private", "--data", ".", cwd=tmp_path, **storage
        )
    assert "greenhouse" not in done.out
    assert (tmp_path / "irc.db").exists() is not bool(storage)
    assert b"greenhouse" not in stores.raw()


async def shown(tail: AsyncIterator[str], text: str) -> None:
    """Wait until a line comes over the live stream."""
    async for line in tail:
        if line.startswith("data: ") and (event := json.loads(line[6:])) and event["text"] == text:
            return
    raise AssertionError(f"the stream ended without {text!r}")
