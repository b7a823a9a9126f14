"""The catalogue of models over HTTP: who may see it, and fetching one with its progress."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_server.model_catalogue import catalogue
from storage.usage.api_keys import Key
from tests.kit.agent_server import agent_client
from tests.kit.hub import ModelHub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.server_keys import bearer, key_table, until_status


async def ended(http: httpx2.AsyncClient) -> dict[str, Any]:
    """The model `small` once its download has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:  # it runs in a thread of the server
            found = (await http.get("/v1/catalogue", headers=bearer("master"))).json()["data"]
            small: dict[str, Any] = next(each for each in found if each["tier"] == "small")
            if not small["is_pulling"]:
                return small
            await asyncio.sleep(0.02)


async def test_the_operator_fetches_a_model_of_the_catalogue_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ModelHub(b"GGUF of another size") as hub,
        ScriptedOpenAI() as script,
        agent_client(
            {"upstream": script.url, "cache_dir": str(tmp_path / "models")},
            {"admin_key": "master"},
            tmp_path,
        ) as http,
        key_table(tmp_path) as table,
    ):
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        issued = bearer(await table.create(Key("kettle")))
        await until_status(http, 200, issued)
        path = "/v1/catalogue/small/pull"
        assert (await http.get("/v1/catalogue", headers=issued)).status_code == 403
        assert (await http.post(path, headers=issued)).status_code == 403
        admin = bearer("master")
        listed = (await http.get("/v1/catalogue", headers=admin)).json()["data"]
        assert [each["name"] for each in listed] == [each.name for each in catalogue.entries()]
        assert not any(each["is_here"] or each["is_pulling"] or each["bytes"] for each in listed)
        unknown = await http.post("/v1/catalogue/smal/pull", headers=admin)
        assert unknown.status_code == 404
        assert "'small'" in unknown.json()["error"]["message"]
        assert hub.asked == []
        assert (await http.post(path, headers=admin)).status_code == 200
        small = await ended(http)
        assert "its size is 20" in small["trouble"]  # the catalogue knows the right one
        shutil.rmtree(tmp_path / "models")
        (tmp_path / "models").touch()  # where the folder should be
        assert (await http.post(path, headers=admin)).status_code == 200
        small = await ended(http)
        assert "File exists" in small["trouble"]
        assert not small["is_here"]
