"""Which model answers for which name, and what happens when the table changes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from agent_server.app import create_app
from agent_server.model_catalogue import catalogue
from agent_server.settings.models import settings_of_models
from terrarium.config import Config, ConfigError, load
from tests.kit.agent_server import CHAT, HELLO, agent_client, agent_server, until_ready
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.serving import serving

pytest_plugins = ("tests.kit.engine",)

NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def three() -> AsyncIterator[tuple[ScriptedOpenAI, ScriptedOpenAI, httpx2.AsyncClient]]:
    """A server whose default is the first script and whose model `big` is the second."""
    async with ScriptedOpenAI(model="one") as one, ScriptedOpenAI(model="two") as two:
        model = {
            "upstream": one.url,
            "aliases": {"fast": "terra", "smart": ["big", "terra"]},
            "models": {"big": {"upstream": two.url, "vision": False, "context": 512}},
        }
        async with agent_client(model) as http:
            yield one, two, http


async def ask(http: httpx2.AsyncClient, model: str | None) -> httpx2.Response:
    return await http.post(CHAT, json={**HELLO, "model": model})


async def test_names_aliases_and_prefixes_choose_the_model_and_the_list_is_the_table() -> None:
    async with three() as (one, two, http):
        for name, script, answers, asked in (
            (None, one, "terra", "one"),
            ("terra", one, "terra", "one"),
            ("fast", one, "terra", "one"),
            ("local:terra", one, "terra", "one"),
            ("big", two, "big", "two"),
            ("smart", two, "big", "two"),
            ("big:other", two, "big:other", "other"),
        ):
            answer = await ask(http, name)
            assert answer.json()["model"] == answers
            assert script.requests[-1]["model"] == asked
        for name in ("nobody", "big:", "local:nobody", "nobody:big"):
            answer = await ask(http, name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        cards = (await http.get("/v1/models")).json()["data"]
        assert [card["id"] for card in cards][:4] == ["terra", "big", "fast", "smart"]
        card = (await http.get("/v1/models/smart")).json()
        assert card["max_model_len"] == 512
        assert card["capabilities"]["vision"] is False
        assert (await http.get("/v1/models/nobody")).status_code == 404


async def test_the_next_of_a_chain_answers_when_the_first_cannot() -> None:
    async with three() as (one, two, http):
        two.fail(503, "not now")
        whole = await ask(http, "smart")
        assert whole.json()["model"] == "terra"
        two.fail(429, "busy")
        stream = await http.post(CHAT, json={**HELLO, "model": "smart", "stream": True})
        assert '"model":"terra"' in stream.text
        assert (len(one.requests), len(two.requests)) == (2, 2)
        # But not once an answer has begun, nor after a bad request.
        two.cut("a beginning").fail(400, "no such thing")
        answer = await http.post(CHAT, json={**HELLO, "model": "smart", "stream": True})
        assert "beginning" in answer.text
        assert "engine_unavailable" in answer.text
        assert (await ask(http, "smart")).status_code == 400
        assert (len(one.requests), len(two.requests)) == (2, 4)


def toml(path: Path, model: Mapping[str, Any]) -> None:
    lines = [f'{key} = "{value}"' for key, value in model.items()]
    path.write_text("\n".join(["[model]", *lines, ""]), encoding="utf-8")


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    config = load(path, path.parent)
    async with (
        serving(create_app(config)) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        await until_ready(url)
        yield http


async def until_logged(logs: list[Any], event: str) -> Mapping[str, Any]:
    found = await until(lambda: [entry for entry in logs if entry["event"] == event])
    return dict(found[0])


@pytest.mark.parametrize("told", [True, False])
async def test_the_table_follows_its_file_and_old_answers_end(tmp_path: Path, told: bool) -> None:
    path, gauge = tmp_path / "terrarium.toml", 'terrarium_slots{{model="{}"}}'
    async with ScriptedOpenAI() as one, ScriptedOpenAI() as two:
        toml(path, {"upstream": one.url})
        with capture_logs() as logs:
            async with following(path) as http:
                one.hang("a beginning")
                slow = asyncio.ensure_future(ask(http, None))
                await one.arrived()
                toml(path, {"upstream": two.url, "name": "new"})
                if told:
                    os.kill(os.getpid(), signal.SIGHUP)
                changed = await until_logged(logs, "routing.changed")
                assert changed["models"] == ["new"]
                assert (await ask(http, "new")).status_code == 200
                assert len(two.requests) == 1
                assert gauge.format("terra") in (await http.get("/metrics")).text
                one.release()
                answer = (await slow).json()
                assert answer["choices"][0]["message"]["content"] == "a beginning"
                async with asyncio.timeout(PATIENCE):
                    while gauge.format("terra") in (  # noqa: ASYNC110
                        found := (await http.get("/metrics")).text
                    ):
                        await asyncio.sleep(0.02)
                assert gauge.format("new") in found


def test_what_is_set_for_an_upstream_does_not_hold_for_a_chosen_file() -> None:
    of_upstream = {"context": 131_072, "slots": 32, "tools": "native", "upstream_model": "big"}
    model = {"upstream": NOWHERE, "aliases": {"fast": "terra"}, "threads": 1, **of_upstream}
    table, _ = settings_of_models(Config({"model": model}, None, Path()), chosen=Path("a.gguf"))
    assert (table.file, table.aliases, table.threads) == (Path("a.gguf"), {"fast": "terra"}, 1)
    assert (table.context, table.slot_count, table.tool_mode) == (None, 2, "constrained")
    assert table.upstream_model is None


@pytest.mark.engine
async def test_a_chosen_model_is_put_into_the_table_as_it_is_now(
    tmp_path: Path, model_file: Path
) -> None:
    path, entry = tmp_path / "terrarium.toml", catalogue.find("lfm2-350m")
    assert entry
    shutil.copy(model_file, tmp_path / entry.file)
    with (tmp_path / entry.file).open("ab") as file:
        file.truncate(entry.size)  # what is missing is a hole
    async with ScriptedOpenAI() as one:
        model = {"upstream": one.url, "cache_dir": str(tmp_path)}
        toml(path, model)
        with capture_logs() as logs:
            async with following(path) as http:
                toml(path, model | {"name": "new"})
                await until_logged(logs, "routing.changed")
                logs.clear()
                assert (await http.post(f"/v1/catalogue/{entry.name}/use")).status_code == 200
                assert (await until_logged(logs, "routing.changed"))["models"] == ["new"]


async def test_budgets_and_prices_follow_the_file_and_know_what_was_spent(tmp_path: Path) -> None:
    path = tmp_path / "terrarium.toml"
    ada, bob = ({"x-person": each} for each in ("5eed", "f00d"))
    async with ScriptedOpenAI() as script:
        model = f'[model]\nupstream = "{script.url}"\n'
        person = '[usage.budgets.people]\nper = "person"\ntokens_per_day = {}\n'
        path.write_text(model + person.format(100))
        with capture_logs() as logs:
            async with following(path) as http:
                assert (await http.post(CHAT, json=HELLO, headers=ada)).status_code == 200
                path.write_text(model + person.format(2) + '[usage]\ncurrency = "EUR"\n')
                await until_logged(logs, "routing.changed")
                refused = await http.post(CHAT, json=HELLO, headers=ada)
                assert refused.json()["error"]["code"] == "budget_exhausted"
                assert (await http.post(CHAT, json=HELLO, headers=bob)).status_code == 200
                assert (await http.get("/usage")).json()["currency"] == "EUR"
                logs.clear()
                path.write_text(model + "[usage.budgets.all]\ntokens_per_day = 4\n")
                await until_logged(logs, "routing.changed")
                refused = await http.post(CHAT, json=HELLO)
                assert "the budget all of 4 tokens" in refused.json()["error"]["message"]
                # A bad table keeps the old one, and the log says why.
                for bad, reason in (
                    (model + "[usage.budgets.all]\n", "give tokens_per_day"),
                    (model.replace("upstream", "upsteam"), "upstream"),
                ):
                    logs.clear()
                    path.write_text(bad)
                    assert reason in (await until_logged(logs, "routing.kept"))["reason"]
                    assert (await http.post(CHAT, json=HELLO)).status_code == 429


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"aliases": {"fast": "nobody"}}, "nobody"),
        ({"models": {"big": {}}}, "neither path nor upstream"),
        ({"models": {"big": {"upsteam": "http://a"}}}, "upstream"),
        ({"models": {"terra": {"upstream": "http://a"}}}, "default"),
        ({"models": {"a:b": {"upstream": "http://a"}}}, "a:b"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(model: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings_of_models(Config({"model": model}, None, Path("data")))


async def test_routine_requests_are_not_worth_a_line_in_the_log() -> None:
    async with ScriptedOpenAI() as script, agent_server({"upstream": script.url}) as url:
        with capture_logs() as logs:
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
                for name in ("nobody", "terra"):
                    await http.get(f"/v1/models/{name}")
                for state in ("ready", None):
                    await http.put("/v1/tendrils/kettle", json={"state": state})
    done = [each for each in logs if each["event"] == "request.done"]
    told = {each["status"]: each["log_level"] for each in done}
    assert told == {404: "debug", 200: "info", 204: "debug", 400: "info"}
