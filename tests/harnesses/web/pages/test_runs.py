"""The pages of the runs: what each turn did, of whatever tendril."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.async_api import expect

from storage.db.database import Database
from storage.runs.runs import Run, RunEnd, Runs, Step
from tests.kit.browser import PHONE, browser, visit
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import web_site

PAGE = {"accept": "text/html"}
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def run(number: int, **values: object) -> Run:
    begun = NOON + timedelta(minutes=number)
    return Run(f"key{number}", f"irc/#frogs/nick{number}", "standard", "terra", begun, **values)  # type: ignore[arg-type]


async def kept(data: Path, tendril: str, *runs: Run) -> None:
    """Runs of another tendril, in its file."""
    async with Database.open(data / f"{tendril}.db") as database:
        table = Runs(database)
        for each in runs:
            await table.begin(each)
            ended = RunEnd(each.started + timedelta(seconds=2), "answered", answer="It is green.")
            await table.end(each.key, ended, [Step("tool", "look", True, 7, "allow")])


async def test_a_question_in_the_chat_is_a_run_that_names_nobody(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, browser() as chromium:
        script.cached_tokens = 3
        async with web_site(
            tmp_path, tables={"agent": {"api_url": script.url, "trace_words": True}}
        ) as site:
            script.call("search_chat_logs", {"query": "newts"}).say("No newts.")
            await site.http.post("/chat", json={"text": "where are the newts?"})
            page = await visit(chromium, f"{site.url}/runs", size=PHONE)
            await expect(page.locator(".cards li")).to_contain_text("a private conversation")
            await expect(page.locator(".badge")).to_have_text("answered")
            await page.locator(".cards a").click()
            steps = page.locator(".steps li")
            await expect(steps).to_have_count(3)
            await expect(steps.nth(0)).to_contain_text("1 call")
            await expect(steps.nth(1)).to_contain_text("search_chat_logs")
            await expect(steps.nth(1)).to_contain_text("allow · worked")
            text = await page.locator("main").inner_text()
            assert "newts" not in text
            for cookie in await page.context.cookies():
                assert cookie["value"] not in text


async def test_runs_of_all_tendrils_are_listed_by_time_page_by_page(tmp_path: Path) -> None:
    await kept(tmp_path, "irc", *(run(number) for number in range(0, 60, 2)))
    await kept(tmp_path, "my-own", *(run(number) for number in range(1, 60, 2)))
    (tmp_path / "usage.db").write_bytes(b"somebody else's")
    async with web_site(tmp_path) as site:
        first = (await site.http.get("/runs", headers=PAGE)).text
        assert first.index("nick59") < first.index("nick58") < first.index("nick10")
        assert "nick9" not in first
        [older] = [part.split('"')[0] for part in first.split('href="')[1:] if "before=" in part]
        second = (await site.http.get(older, headers=PAGE)).text
        assert second.index("nick9") < second.index("nick0")
        assert "nick10" not in second
        one = await site.http.get("/runs/my-own-1", headers=PAGE)
        assert "nick1" in one.text
        assert "look" in one.text
        for name in ("irc-99", "irc-x", "irc", "..%2Firc-1", "web-99999999999999999999", "usage-1"):
            assert (await site.http.get(f"/runs/{name}", headers=PAGE)).status_code == 404, name


async def test_words_are_shown_only_where_they_are_kept(tmp_path: Path) -> None:
    await kept(
        tmp_path,
        "irc",
        run(1, question="what <b>colour</b>?", worded=True),
        run(2, question="what colour?", worded=False),
        run(3, question="what colour?", worded=True, private=True),
    )
    async with web_site(tmp_path) as site:
        pages = [(await site.http.get(f"/runs/irc-{n}", headers=PAGE)).text for n in (1, 2, 3)]
        assert "what &lt;b&gt;colour&lt;/b&gt;?" in pages[0]
        assert "It is green." in pages[0]
        for page in pages[1:]:
            assert "colour" not in page
            assert "green" not in page
        assert "nick3" not in pages[2]


async def test_only_who_may_read_everything_sees_the_runs(tmp_path: Path) -> None:
    settings = {
        "token": "whole",
        "public": ["irc/#open"],
        "tokens": {"guest": {"token": "only-open", "channels": ["irc/#open"]}},
    }
    await kept(tmp_path, "irc", run(1))
    async with web_site(tmp_path, settings=settings) as site:
        for path in ("/runs", "/runs/irc-1"):
            for token, status in (("", 303), ("only-open", 303), ("whole", 200)):
                headers = PAGE | ({"authorization": f"Bearer {token}"} if token else {})
                answer = await site.http.get(path, headers=headers)
                assert answer.status_code == status, (path, token)


async def test_a_run_that_goes_on_says_so(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, web_site(tmp_path, agent_url=script.url) as site:
        script.hang("Well")
        asking = asyncio.create_task(site.http.post("/chat", json={"text": "hello?"}))
        await script.arrived()
        going = await site.http.get("/runs/web-1", headers=PAGE)
        assert "It is still going on." in going.text
        script.release()
        await asking
        assert "answered" in (await site.http.get("/runs", headers=PAGE)).text


async def test_a_run_without_a_model_says_that_none_was_needed(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        table = Runs(database)
        for number, iterations in ((1, 0), (2, 1)):
            each = run(number)
            await table.begin(each)
            ended = RunEnd(each.started + timedelta(seconds=2), "answered", iterations=iterations)
            await table.end(each.key, ended, [])
    async with web_site(tmp_path) as site:
        listed = (await site.http.get("/runs", headers=PAGE)).text
        assert listed.count("no model was needed, in 2.0 s") == 1
        assert listed.count("0 tokens read") == 1
        one = (await site.http.get("/runs/irc-1", headers=PAGE)).text
        assert "none was needed" in one
        assert "tokens read" not in one
        assert "tokens read" in (await site.http.get("/runs/irc-2", headers=PAGE)).text
