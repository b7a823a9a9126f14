"""The pages in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from storage.chat_log.event import EventType
from tests.kit.browser import PHONE, visit
from tests.kit.web_site import WebSite, event, excerpt, web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = [
    "<script>document.title = 'run'</script>",
    '"><img src=x onerror="document.title=\'run\'">',
    "'><svg onload=document.title='run'>",
    "</span></li></ol><h1>broken</h1>",
    "{{ 7 * 7 }} {% raw %} &lt;b&gt;",
    "javascript:document.title='run' https://a.example/\"onmouseover=\"document.title='run'",
    "\x00\x01\x02bold\x0f\x1b[31mred\x07\r\nQUIT :x",
    "\u202egnp.exe\u202c \u2066isolated",
    "a" * 2000,
    "Z̸̡͎͍̈́͛a̷̧̛͙͈l̵̨͍̒g̶̞͝o̸̙͐ " * 20,
    "مرحبا <b>عربي</b> english",
]


Seen = Callable[..., AbstractAsyncContextManager[tuple[WebSite, Page]]]


@pytest.fixture
def seen(chromium: Browser, tmp_path: Path) -> Seen:
    """A page of a site with the real lines, in a browser."""

    @asynccontextmanager
    async def opened(
        path: str, size: tuple[int, int] = PHONE, **options: Any
    ) -> AsyncIterator[tuple[WebSite, Page]]:
        async with web_site(tmp_path, events=excerpt(), **options) as site:
            yield site, await visit(chromium, site.url + path, size=size)

    return opened


async def test_lines_appear_live_and_who_has_scrolled_up_is_told_and_not_moved(seen: Seen) -> None:
    async with seen("/channel/irc/%23ubuntu") as (site, page):
        await expect(page.locator("#state")).to_have_text("live")
        await site.said("elsewhere", channel="#other")
        number = await site.said("fresh <b>frogs</b>")
        line = page.locator(f"#e{number}")
        await expect(line.locator(".text")).to_have_text("fresh <b>frogs</b>")
        await expect(line).to_be_in_viewport()
        assert await page.locator("text=elsewhere").count() == 0
        await site.said("hello")
        for nick in ("ann", "bob"):
            await site.said("", nick=nick, type=EventType.JOIN)
        fold = page.locator("#log > li").last
        await expect(fold.locator("summary")).to_have_text("ann joined, bob joined")
        await fold.locator("summary").click()
        await expect(fold.locator("ul > li")).to_have_count(2)
        await page.evaluate("() => scrollTo({top: 0})")
        await site.said("down there")
        await expect(page.locator("#below")).to_have_text("1 new line ↓")
        assert await page.evaluate("() => scrollY") == 0
        await page.locator("#below").click()
        await expect(page.locator("#log > li").last).to_be_in_viewport()
        await expect(page.locator("#below")).to_be_hidden()


async def test_what_came_since_the_last_visit_is_marked_and_the_end_is_a_click_away(
    seen: Seen,
) -> None:
    async with seen("/channel/irc/%23ubuntu") as (site, page):
        await expect(page.locator("#state")).to_have_text("live")
        assert await page.locator(".unread").count() == 0
        await page.goto("about:blank")
        missed = await site.said("while you were away")
        await site.said("and more")
        await page.goto(f"{site.url}/channel/irc/%23ubuntu")
        await expect(page.locator(f".unread + #e{missed}")).to_be_in_viewport()
        await page.evaluate("() => scrollTo({top: 0})")
        await expect(page.locator("#below")).to_have_text("Newest ↓")
        await page.locator("#below").click()
        await expect(page.locator("#log > li").last).to_be_in_viewport()
        await page.locator("#say input").fill("the tea is ready")
        await page.keyboard.press("Enter")
        await expect(page.locator("#said")).to_contain_text("Terra will say it")
        await expect(page.locator("#say input")).to_have_value("")


async def test_a_page_goes_on_by_itself_after_a_restart_of_the_tendril(
    chromium: Browser, tmp_path: Path
) -> None:
    async with web_site(tmp_path, events=excerpt()) as site:
        port = int(site.url.rpartition(":")[2])
        page = await visit(chromium, f"{site.url}/channel/irc/%23ubuntu")
        await expect(page.locator("#state")).to_have_text("live")
    await expect(page.locator("#state")).to_have_text("reconnecting…")
    missed = event("said while it was away")
    async with web_site(tmp_path, events=[missed], settings={"port": port}):
        await expect(page.locator("#log")).to_contain_text(missed.text, timeout=15_000)
        await expect(page.locator("#state")).to_have_text("live")


async def test_older_lines_are_a_link_away_and_a_permalink_finds_any_line(seen: Seen) -> None:
    async with seen("/channel/irc/%23ubuntu") as (site, page):
        assert await page.locator(f"#e{site.ids[0]}").count() == 0
        await page.locator("#older").click()
        await expect(page.locator(f"#e{site.ids[1]}")).to_be_attached()
        fourth, fifth = site.ids[3:5]
        await page.goto(f"{site.url}/channel/irc/%23ubuntu?at={fifth}#e{fifth}")
        await expect(page.locator(f"#e{fifth}")).to_be_in_viewport()
        await page.goto("about:blank")
        await page.goto(f"{site.url}/channel/irc/%23ubuntu#e{fourth}")  # not among the newest 200
        await page.wait_for_url(f"**?at={fourth}#e{fourth}")
        await expect(page.locator(f"#e{fourth}")).to_be_in_viewport()
        await page.goto(f"{site.url}/channel/irc/Ubuntu")  # without its mark, in another case
        assert page.url == f"{site.url}/channel/irc/%23ubuntu"


async def test_the_slash_key_searches_and_a_result_leads_to_its_context(seen: Seen) -> None:
    async with seen("/", size=(1280, 800)) as (_, page):
        await page.keyboard.press("/")
        await page.keyboard.type("hdparm minimum")
        await page.keyboard.press("Enter")
        await expect(page.locator(".found .line")).to_have_count(1)
        await expect(page.locator("mark")).to_have_text(["minimum", "hdparm"])
        await page.locator(".found .when").click()
        await expect(page.locator(".line:target")).to_contain_text("that's the minimum")


HOSTILE_PATHS = (
    *("/channel/irc/%23ubuntu", "/", "/search?q=hostile", "/stats/irc/%23ubuntu"),
    "/person/%3Cb%3E",
)
FOREIGN = "main img, main script, main b, main h1 ~ h1, main svg:not(.spark, .chart, .share)"


@pytest.mark.slow
async def test_hostile_lines_neither_run_nor_break_a_page(
    chromium: Browser, tmp_path: Path
) -> None:
    events = [event(f"hostile {text}", nick=text[:30] or "x") for text in HOSTILE]
    events += [event("hostile <b>", nick="<b>")]
    events += [event("hostile", channel=f"#{text[:40]}") for text in HOSTILE[:5]]
    events += [event(text, type=EventType.TOPIC, nick=text[:30]) for text in HOSTILE]
    async with web_site(tmp_path, events=events) as site:
        pages = [(path, *await watched(chromium, site.url + path)) for path in HOSTILE_PATHS]
        for text in HOSTILE:  # and once more by the live tail
            await site.said(f"hostile {text}", nick=text[:30])
        last = await site.said("hostile end")
        for path, page, errors in pages:
            if "channel" in path:
                await expect(page.locator(f"#e{last}")).to_be_attached()
            assert "run" not in await page.title(), path
            assert await page.locator("h1").count() == 1, path
            assert await page.locator(FOREIGN).count() == 0, path
            assert await page.locator("[onerror], [onload], [onmouseover]").count() == 0, path
            assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            assert errors == [], path


async def watched(chromium: Browser, url: str) -> tuple[Page, list[str]]:
    """A page on a phone, and what it complains about."""
    page = await visit(chromium, "about:blank", size=PHONE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    await page.goto(url)
    return page, errors


async def test_a_chat_without_a_server_says_so(chromium: Browser, tmp_path: Path) -> None:
    async with web_site(tmp_path) as site:
        page = await visit(chromium, f"{site.url}/chat")
    await page.keyboard.type("hello?")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answered.failed")).to_contain_text("cannot be reached")


async def test_a_login_in_the_browser_opens_the_page_that_was_asked_for(seen: Seen) -> None:
    async with seen("/channel/irc/%23ubuntu?day=2004-11-15", settings={"token": "frogs"}) as found:
        site, page = found
        await page.keyboard.type("frogs")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/channel/irc/%23ubuntu?day=2004-11-15")
        await expect(page.locator(f"#e{site.ids[8]}")).to_be_attached()
        await page.goto(f"{site.url}/channel/irc/%23ubuntu")
        await expect(page.locator("#state")).to_have_text("live")


async def test_a_page_that_nobody_sees_gives_its_stream_back_and_misses_nothing(
    seen: Seen, chromium: Browser
) -> None:
    async with seen("/channel/irc/ubuntu") as (site, page):
        other = await visit(chromium, f"{site.url}/channel/irc/ubuntu")
        for each in (page, other):
            await expect(each.locator("#state")).to_have_text("live")
        await show(page, hidden=True)
        await site.said("while nobody looked")
        await expect(other.locator("#log > li").last).to_contain_text("while nobody looked")
        assert await page.locator("text=while nobody looked").count() == 0
        await show(page, hidden=False)
        await expect(page.locator("#log > li").last).to_contain_text("while nobody looked")


async def show(page: Page, *, hidden: bool) -> None:
    """Tell the page that its tab is hidden or shown: a browser without a window has no tabs."""
    await page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )
