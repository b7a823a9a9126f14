"""The pages are for everybody: axe-core finds nothing grave on any, and no page is too wide."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser

from storage.chat_log.event import EventType
from tests.kit.axe import barriers
from tests.kit.browser import DESKTOP, PHONE, visit
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import two_days, web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = """
/ /channel/irc/%23ubuntu /channel/irc/%23ubuntu?day=2004-11-15 /channel/irc/%23ubuntu?day=2006-01-01
/search /search?q=k3b /search?q=ubuntu&order=rank /search?q=nothing+like+it
/stats /stats/irc/%23ubuntu /calendar/irc/%23ubuntu?year=2004 /person/Nafallo
/chat /tendrils /models /usage /settings /api /runs /runs/web-1 /zone /login /no-such-page
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
async def test_nothing_grave_keeps_anybody_out_of_a_page(
    chromium: Browser, tmp_path: Path, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with (
        ScriptedOpenAI() as script,
        web_site(tmp_path, events=two_days(), agent_url=script.url) as site,
    ):
        await site.http.post("/chat", json={"text": "hello?"})  # a run
        await site.said("waves", type=EventType.ACTION, channel="#terrarium")
        await site.said("careful", type=EventType.NOTICE, channel="#terrarium", own=True)
        page = await visit(chromium, "about:blank", size=size, scheme=scheme)
        for path in PAGES.split():
            await page.goto(site.url + path)
            assert await barriers(page) == [], path
            width = "() => document.documentElement.scrollWidth <= innerWidth"
            assert await page.evaluate(width), path
