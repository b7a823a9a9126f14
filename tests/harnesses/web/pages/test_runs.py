"""The pages of the runs: what each turn did, of whatever tendril."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.async_api import expect

from storage.db.database import Database
from storage.memory.conversations import Conversations, Turn
from storage.runs.runs import Run, RunEnd, Runs, Step
from tests.kit.browser import PHONE, browser, visit
from tests.kit.irc_scene import alice_in
from tests.kit.irc_tendril import ROOM, conversation_with, kept_turns
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import PAGE, WebSite, bearer, web_site

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
            ended = RunEnd(each.started + timedelta(seconds=2), "answered")
            await table.end(each.key, ended, [Step("tool", "look", True, 7, "allow")])


async def test_a_question_in_the_chat_is_a_run_that_names_nobody(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, browser() as chromium:
        script.cached_tokens = 3
        async with web_site(tmp_path, agent_url=script.url) as site:
            script.call("search_log", {"query": "newts"}).say("No newts.")
            await site.http.post("/chat", json={"text": "where are the newts?"})
            page = await visit(chromium, f"{site.url}/runs", size=PHONE)
            await expect(page.locator(".cards li")).to_contain_text("a private conversation")
            await expect(page.locator(".badge")).to_have_text("answered")
            await page.locator(".cards a").click()
            steps = page.locator(".steps li")
            shown = [await step.locator("p").inner_text() for step in await steps.all()]
            kinds = [each.partition(" ·")[0] for each in shown]
            assert kinds == ["reading", "retrieval", "model", "tool", "model", "delivery"]
            assert "1 call" in shown[-4]
            assert shown[-3] == "tool · allow · worked"
            await expect(steps.filter(has_text="search_log")).to_have_count(1)
            text = await page.locator("main").inner_text()
            assert "newts" not in text
            for cookie in await page.context.cookies():
                assert cookie["value"] not in text


async def test_runs_of_all_tendrils_are_listed_by_time_page_by_page(tmp_path: Path) -> None:
    await kept(tmp_path, "irc", *(run(number) for number in range(0, 60, 2)))
    await kept(tmp_path, "my-own", *(run(number) for number in range(1, 60, 2)))
    (tmp_path / "usage.db").write_bytes(b"somebody else's")
    async with web_site(tmp_path) as site:
        first = await site.page("/runs")
        assert first.index("nick59") < first.index("nick58") < first.index("nick10")
        assert "nick9" not in first
        [older] = [part.split('"')[0] for part in first.split('href="')[1:] if "before=" in part]
        second = await site.page(older)
        assert second.index("nick9") < second.index("nick0")
        assert "nick10" not in second
        one = await site.page("/runs/my-own-1")
        assert "nick1" in one
        assert "look" in one
        for name in ("irc-99", "irc-x", "irc", "..%2Firc-1", "web-99999999999999999999", "usage-1"):
            assert (await site.http.get(f"/runs/{name}", headers=PAGE)).status_code == 404, name


async def answered(data: Path, script: ScriptedOpenAI) -> None:
    """Somebody asks on the channel, and the model thinks, searches and answers."""
    search = ("search_log", '{"query": "newts"}')
    script.cached_tokens = 40
    script.answer(Answer(calls=(search,), reasoning="Where are <b>newts</b>?"))
    script.say("In the\npond.")
    async with alice_in(data, script.url) as (alice, tendril):
        await alice.say(ROOM, "the newts are in the pond")
        await alice.say(ROOM, ".terrarium where are they?")
        await alice.expect("pond\\.$")
        await kept_turns(tendril, conversation_with("alice"))


async def test_from_a_line_of_the_bot_one_gets_to_why_it_was_said(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, browser() as chromium:
        await answered(tmp_path, script)
        async with web_site(tmp_path) as site:
            lines = (await site.get("/api/messages"))["messages"]
            [said] = [each["id"] for each in lines if each["own"] and "pond." in each["text"]]
            page = await visit(chromium, f"{site.url}/line/{said}", size=PHONE)
            await page.get_by_role("link", name="Why did it say that?").click()
            await expect(page.locator("main")).to_contain_text("where are they?")
            await expect(page.locator(".steps > .delivery")).to_contain_text("worked")
            steps = page.locator(".steps > :is(.model, .tool)")
            await expect(steps).to_have_count(3)
            await expect(steps.nth(0)).to_contain_text("ended by tool_calls")
            await steps.nth(0).get_by_text("The prompt").click()
            parts = await steps.nth(0).locator("tbody th").all_inner_texts()
            assert parts[0] == "tools"
            assert parts[-1] == "question"
            assert {"persona", "channel log"} < set(parts)
            await expect(steps.nth(0).locator("pre")).to_have_text("Where are <b>newts</b>?")
            await expect(steps.nth(1).locator("pre").nth(0)).to_have_text('{"query": "newts"}')
            await expect(steps.nth(1).locator("pre").nth(1)).to_contain_text("the newts are in")
            await expect(steps.nth(2)).to_contain_text("ended by stop")
            bars = page.get_by_role("img")
            assert await bars.count() == await page.locator(".steps > li").count()
            name = re.compile(r"delivery from \d+")
            await expect(bars.last).to_have_attribute("aria-label", name)
            assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
            await page.get_by_role("link", name="the question in the log").click()
            await expect(page.get_by_text("How was this answered?")).to_be_visible()


async def test_a_run_is_read_as_json_by_whoever_may_read_its_question(tmp_path: Path) -> None:
    settings = {
        "token": "whole",
        "public": [f"irc/{ROOM}"],
        "tokens": {
            "guest": {"token": "only-room", "channels": [f"irc/{ROOM}"]},
            "other": {"token": "elsewhere", "channels": ["irc/#other"]},
        },
    }
    async with ScriptedOpenAI() as script:
        await answered(tmp_path, script)
    async with web_site(tmp_path, settings=settings) as site:
        for token, status in (("whole", 200), ("only-room", 200), ("elsewhere", 401), ("", 401)):
            headers = bearer(token)
            listed = await site.http.get("/runs", headers=headers | PAGE)
            assert listed.status_code == (200 if token == "whole" else 303)
            found = await site.http.get("/runs/irc-1.json", headers=headers)
            assert found.status_code == status, token
            accepted = headers | {"accept": "application/json"}
            other = await site.http.get("/runs/irc-1", headers=accepted)
            assert (other.status_code, other.content) == (status, found.content)
            if status == 200:
                run = found.json()
                assert (run["question"], run["answer"]) == ("where are they?", "In the\npond.")
                spoken = [step for step in run["steps"] if step["kind"] in ("model", "tool")]
                first, called, last = spoken
                assert first["thought"] == "Where are <b>newts</b>?"
                cached = [part["cached"] for part in first["prompt"]]
                assert (cached[0] > 0, sum(cached), first["cached_tokens"]) == (True, 40, 40)
                assert json.loads(called["arguments"]) == {"query": "newts"}
                assert "the newts are in the pond" in called["result"]
                assert (last["text"], last["finish_reason"]) == ("In the\npond.", "stop")
        line = f"/line/{run['line']}"
        page = await site.http.get(line, headers=PAGE, follow_redirects=True)
        assert "where are they?" in page.text
        assert "/runs/" not in page.text


async def test_words_are_shown_where_the_question_is_in_the_log_and_of_jobs(tmp_path: Path) -> None:
    async with web_site(tmp_path) as site, Database.open(tmp_path / "irc.db") as database:
        line = await site.said("what <b>colour</b>?", channel="#frogs", nick="nick1")
        elsewhere = await site.said("what colour?", channel="#newts")
        runs = [
            run(1, question_event_id=line),
            run(2, question_event_id=elsewhere),
            run(3),
            run(4, question_event_id=line, private=True),
            replace(run(5), profile="job"),
            replace(run(6, question_event_id=line), conversation="irc/#frogs%:thread/nick6"),
        ]
        for each in runs:
            await Runs(database).begin(each)
            messages = (
                {"role": "user", "content": "what <b>colour</b>?"},
                {"role": "assistant", "content": "It is green."},
            )
            turn = Turn(each.question_event_id, each.started, messages)
            await Conversations(database).add(each.conversation, turn)
        for number in range(1, 7):
            page = await site.page(f"/runs/irc-{number}")
            shown = ["what &lt;b&gt;colour&lt;/b&gt;?" in page, "It is green." in page]
            assert shown == [number in (1, 5, 6)] * 2, number
            assert "nick4" not in page
        listed = await site.page("/runs")
        assert listed.count("It is green.") == 3
        assert "nick4" not in listed
        await Conversations(database).clear(runs[0].conversation)
        page = await site.page("/runs/irc-1")
        assert "colour" not in page
        assert "The text was deleted" in page
        listed = await site.page("/runs")
        assert listed.count("It is green.") == 2
        assert ">nick1 in the log</a>" in listed


async def test_a_run_that_goes_on_says_so(script: ScriptedOpenAI, chat: WebSite) -> None:
    script.hang("Well")
    asking = asyncio.create_task(chat.http.post("/chat", json={"text": "hello?"}))
    await script.arrived()
    going = ""
    async with asyncio.timeout(PATIENCE):  # the run is opened beside the request
        while "Still running." not in going:
            await asyncio.sleep(0.01)
            going = (await chat.http.get("/runs/web-1", headers=PAGE)).text
    script.release()
    await asking
    assert "answered" in await chat.page("/runs")


async def test_a_run_without_a_model_says_that_none_was_needed(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        table = Runs(database)
        for number, iterations in ((1, 0), (2, 1)):
            each = run(number)
            await table.begin(each)
            ended = RunEnd(each.started + timedelta(seconds=2), "answered", iterations=iterations)
            steps = [
                Step("reading", "local", True, 3, "0.96 en"),
                Step("retrieval", "log", True, 1200, began=3),
            ]
            await table.end(each.key, ended, steps)
    async with web_site(tmp_path) as site:
        listed = await site.page("/runs")
        assert listed.count("no model call, in 2.0 s") == 1
        assert listed.count("0 prompt tokens") == 1
        one = await site.page("/runs/irc-1")
        assert "reading · 96 % sure" in one
        assert 'aria-label="retrieval from 3 ms to 1,203 ms"' in one
        assert ">1.2 s</span>" in one
        assert "<span>0</span><span>2.0 s</span>" in one  # the axis
        assert "<dt>model calls</dt><dd>none</dd>" in one
        assert "prompt tokens" not in one
        assert "prompt tokens" in await site.page("/runs/irc-2")
