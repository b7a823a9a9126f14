"""The page of attention: what was felt, and how people judge it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.async_api import expect

from storage.chat_log import deletion
from storage.chat_log.event import Place
from storage.queues.pastes import Pastes
from storage.queues.unasked import LIFETIME, Signal, SignalKind, Signals
from tests.kit.browser import PHONE, browser, visit
from tests.kit.web_site import CHANNEL, NETWORK, WebSite, bearer, web_site

PLACE = Place(NETWORK, CHANNEL)


async def felt(site: WebSite, kind: SignalKind, text: str, outcome: str, paste: str = "") -> int:
    """A signal about a line that is logged now; return the id of the line."""
    line, now = await site.said(text), datetime.now(UTC)
    signal = Signal(now, kind, PLACE, event_id=line, outcome=outcome, ended=now, energy=0.8)
    if paste:
        words = (PLACE, "ada", paste, (), LIFETIME, {line})
        signal.paste = await Pastes(site.log.database).add(*words)
    await Signals(site.log.database).put(signal)
    return line


async def test_moments_are_judged_and_give_precision_and_recall(tmp_path: Path) -> None:
    async with web_site(tmp_path) as site, browser() as chromium:
        said = "Mount <b>it</b>."
        woken = "woke the model: an answer"
        asked = await felt(site, "question", "how do I mount it?", woken, said)
        await felt(site, "question", "who knows?", "woke the model: nothing to say")
        await felt(site, "question", "where is it?", "answered")
        await felt(site, "mention", "I like Terra", "faded")
        page = await visit(chromium, f"{site.url}/attention", size=PHONE)
        moments = page.locator("li[id]")
        await expect(moments).to_have_count(3)
        await expect(moments.nth(2)).to_contain_text(f"Answer: {said}")
        await expect(page.locator("svg.spark")).to_have_count(4)  # and energy
        for number, verdict in ((0, "Good"), (1, "Bad"), (2, "Good")):
            await moments.nth(number).get_by_role("button", name=verdict).click()
        text = page.locator("main")
        await expect(text).to_contain_text("3 moments judged · precision 50 % · recall 50 %")
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        await deletion.remove(site.log.database, [asked])  # as an erasure does
        await page.reload()
        await expect(moments).to_have_count(2)


async def test_only_who_may_read_all_sees_and_judges(tmp_path: Path) -> None:
    tokens = {"guest": {"token": "only-open", "channels": [f"{NETWORK}/{CHANNEL}"]}}
    async with web_site(tmp_path, settings={"token": "all", "tokens": tokens}) as site:
        await felt(site, "question", "how do I mount it?", "answered")
        for token, shown, judged in (("only-open", 401, 401), ("all", 200, 303)):
            headers = bearer(token)
            assert (await site.http.get("/attention", headers=headers)).status_code == shown
            answer = await site.http.post("/attention/1/good", headers=headers)
            assert answer.status_code == judged
        evil = bearer("all") | {"origin": "https://evil.example"}
        assert (await site.http.post("/attention/1/bad", headers=evil)).status_code == 403
        for wrong in ("1/fine", "x/good", f"{2**63}/good"):
            answer = await site.http.post(f"/attention/{wrong}", headers=headers)
            assert answer.status_code == 422
        (signal,) = await Signals(site.log.database).since(datetime.now(UTC) - timedelta(days=1))
        assert signal.is_good
