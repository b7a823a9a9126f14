"""The first page and the pages for operators: what they tell, and to whom."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from httpx2 import AsyncClient

from agent_server.model_catalogue import catalogue
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.reminders import Owner, Reminder, Reminders
from storage.runs.runs import Run, Runs
from storage.usage.usage import Spending, TokenSpend, UsageAmount
from tests.kit.agent_server import agent_client, agent_server
from tests.kit.hub import ModelHub
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import PAGE, bearer, event, web_site

pytest_plugins = ("tests.kit.engine",)

NOW = datetime.now(UTC)
TOKEN, GUEST = "frogs-in-the-pond", "newts-in-the-pond"
OWNER = PAGE | bearer(TOKEN)
SETTINGS = {
    "token": TOKEN,
    "public": ["irc/#open"],
    "tokens": {"guests": {"token": GUEST, "channels": ["irc/#closed"]}},
}
IRC = {"server": "irc.example.org", "port": 6697, "tls": True, "channels": ["#open"]}
ROOM = "ada!a@example.org"


async def test_the_first_page_tells_everybody_only_what_they_may_see(tmp_path: Path) -> None:
    events = [event(f"what is up in {each}?", channel=each) for each in ("#open", "#closed", ROOM)]
    tables = {"irc": IRC}
    async with web_site(tmp_path, events=events, settings=SETTINGS, tables=tables) as site:
        async with Database.open(tmp_path / "irc.db") as database:
            for number, each in zip(site.ids, events, strict=True):
                run = Run(f"key{number}", f"irc/{each.channel}/ada", "standard", "terra", NOW)
                await Runs(database).begin(
                    replace(run, question_event_id=number, private=each.private)
                )
            for place, text in (("#closed", "feed the newts"), (ROOM, "call the doctor")):
                reminder = Reminder(
                    Owner("irc", "ada"), Place("irc", place), place == ROOM, text, NOW
                )
                await Reminders(database).add(reminder)

        async def seen(token: str) -> list[str]:
            text = await site.page("/", token)
            wanted = (
                "what is up in #open?",
                "what is up in #closed?",
                "feed the newts",
                "/connect -tls irc.example.org 6697",
                "The agent server cannot be reached.",
                "GB free",
                "call the doctor",
                f"what is up in {ROOM}?",
            )
            return [each for each in wanted if each in text]

        assert await seen("") == ["what is up in #open?"]
        assert await seen(GUEST) == ["what is up in #closed?"]
        assert len(await seen(TOKEN)) == 6


async def test_settings_are_shown_to_the_operator_without_their_secrets(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings=SETTINGS, tables={"irc": IRC}) as site:
        tendrils = await site.page("/tendrils", TOKEN)
        assert '<span class="badge ready">ready</span>' in tendrils
        assert site.url in tendrils
        page = await site.page("/settings", TOKEN)
        assert "irc.example.org" in page
        assert TOKEN not in page
        assert GUEST not in page
        for path in ("/settings", "/usage", "/models", "/tendrils"):
            refused = await site.http.get(path, headers=PAGE, follow_redirects=False)
            assert refused.headers["location"].startswith("/login?next="), path


async def test_usage_is_told_by_tendril_purpose_and_person_and_nobody_in_private(
    tmp_path: Path,
) -> None:
    amount = UsageAmount(requests=2, prompt=3_000, cached=1_500, completion=500)
    day = NOW.date()
    async with web_site(tmp_path) as site:
        assert "Nothing used yet" in await site.page("/usage")
        async with Database.open(tmp_path / "irc.db") as database:
            await Spending(database).add(
                {
                    TokenSpend(day, "irc/#pond", "irc/#pond/ada!a@host", "answer"): amount,
                    TokenSpend(day, f"irc/{ROOM}", f"irc/{ROOM}", "answer"): amount,
                    TokenSpend(day, "", "", "summary"): amount,
                    TokenSpend(day - timedelta(days=40), "", "", "old"): amount,
                }
            )
        page = await site.page("/usage")
        assert "<dd>10,500</dd>" in page
        assert "<dd>50%</dd>" in page
        assert "<bdi>irc/#pond/ada</bdi>" in page
        assert "@" not in page
        assert ">7,000<" in page  # in private and in the background, together
        assert "<bdi>old</bdi>" not in page
        assert "Costs are shown for models that have a price" in page


async def test_costs_are_told_where_a_model_has_a_price(tmp_path: Path) -> None:
    usage = {"currency": "EUR", "prices": {"terra": {"prompt": 1e6, "completion": 1e6}}}
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    async with (
        ScriptedOpenAI() as script,
        agent_client({"upstream": script.url}, usage=usage) as server,
        web_site(tmp_path, agent_url=str(server.base_url)) as site,
    ):
        used = (await server.post("/v1/chat/completions", json=body)).json()["usage"]
        page = await site.page("/usage")
    assert f"<dt>EUR in 30 days</dt><dd>{used['total_tokens']:.2f}</dd>" in page
    assert "<td><bdi>terra</bdi></td>" in page


async def test_a_model_is_fetched_by_a_button(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ModelHub(b"GGUF of another size") as hub, ScriptedOpenAI() as script:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        model = {"upstream": script.url, "cache_dir": str(tmp_path / "models")}
        async with agent_server(model) as url, web_site(tmp_path / "web", agent_url=url) as site:
            page = await site.page("/models")
            assert '<input type="hidden" name="name" value="qwen3-4b">' in page
            begun = await site.http.post("/models", data={"name": "small"})
            assert begun.headers["location"] == "/models"
            async with asyncio.timeout(PATIENCE):
                while "its size is 20" not in page:  # the catalogue knows the right one
                    page = await site.page("/models")
            refused = await site.http.post("/models", data={"name": "nothing"}, headers=PAGE)
            assert refused.status_code == 503


@pytest.mark.engine
async def test_a_fetched_model_is_used_without_a_restart_and_one_that_fails_is_not(
    tmp_path: Path, model_file: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    good, bad = (catalogue.find(name) for name in ("lfm2-350m", "small"))
    assert good
    assert bad
    shutil.copy(model_file, models / good.file)
    (models / bad.file).write_bytes(b"GGUF")
    for entry in (good, bad):
        with (models / entry.file).open("ab") as file:
            file.truncate(entry.size)  # what is missing is a hole
    async with ScriptedOpenAI() as script:
        model = {"upstream": script.url, "cache_dir": str(models)}
        async with agent_server(model) as url, web_site(tmp_path / "web", agent_url=url) as site:
            # Each is loaded in turn, and one that is in use already is not loaded again.
            for entry in (bad, good, good):
                form = {"name": entry.name, "action": "use"}
                chosen = await site.http.post("/models", data=form)
                address = chosen.headers["location"]
                assert address == f"/models?used={entry.name}"
            page = ""
            async with asyncio.timeout(PATIENCE):
                while not ("wrong" in page and "in use" in page):
                    page = (await site.http.get(address, headers=PAGE)).text
            assert "is being loaded" not in page
            assert f"<strong><bdi>{good.name}</bdi></strong>" in page
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            async with AsyncClient(timeout=PATIENCE) as http:
                answer = await http.post(f"{url}/v1/chat/completions", json=body)
            assert answer.status_code == 200
            assert not script.requests
            absent = {"name": "medium", "action": "use"}
            assert (await site.http.post("/models", data=absent)).status_code == 503


async def test_errors_are_pages_for_browsers(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings={"token": TOKEN}) as site:
        for number in range(6):
            form = {"token": f"wrong{number}"}
            answer = await site.http.post("/login", data=form, headers=PAGE)
        assert answer.status_code == 429
        assert "<h1>Too Many Requests</h1>" in answer.text
        assert answer.headers["retry-after"].isdecimal()
        assert "<h1>Not Found</h1>" in (await site.http.get("/nowhere", headers=OWNER)).text
        day = await site.http.get("/api/messages?since=foo", headers=OWNER)
        assert day.json()["error"]["message"] == "since: write a day as 2026-03-01"


async def test_the_api_has_a_page_of_its_own_and_that_of_models_tells_if_there_are_none(
    tmp_path: Path,
) -> None:
    async with web_site(tmp_path) as site:
        page = await site.page("/api")
        described = (await site.get("/openapi.json"))["paths"]
        assert [path for path in described if f"<code>{path}</code>" not in page] == []
        assert f"{site.url}/api/search?q=frogs+awake&amp;channel=irc%2F%23terrarium" in page
        assert "No catalogue" in await site.page("/models")  # without an agent server
