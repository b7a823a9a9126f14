"""Statistics, the calendar and the pages of people."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from playwright.async_api import expect

from tests.kit.browser import DESKTOP, browser, visit
from tests.kit.web_site import PAGE, WebSite, event, two_days, web_site

SITE = {"events": two_days()}


async def test_the_api_counts_days_hours_and_answers(tmp_path: Path) -> None:
    monday = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)
    async with web_site(tmp_path) as site:
        asked = await site.said("Terra: hello?", time=monday)
        await site.said("hello", time=monday, nick="Terra", own=True, reply_to=asked)
        await site.said("elsewhere", channel="#other", time=monday)
        stats = await site.get("/api/stats", channel="irc/#ubuntu")
        assert (stats["lines"], stats["people"], stats["replies"]) == (2, 2, 1)
        assert {each["nick"]: each["lines"] for each in stats["top"]} == {"ada": 1, "Terra": 1}
        assert stats["days"] == [{"date": "2026-03-02", "lines": 2, "replies": 1}]
        assert stats["heat_map"][0][23] == 2
        assert sum(map(sum, stats["heat_map"])) == 2
        nick = await site.get("/api/stats", nick="ADA")
        assert (nick["lines"], nick["days"], nick["heat_map"]) == (2, None, None)


async def test_the_statistics_of_a_channel_are_drawn_and_the_calendar_leads_to_its_days(
    site: WebSite,
) -> None:
    async with browser() as chromium:
        page = await visit(chromium, f"{site.url}/stats/irc/%23ubuntu?tz=Asia/Tokyo", size=DESKTOP)
        figures = await page.locator(".figures dd").all_inner_texts()
        assert figures == ["756", "116", "2"]
        assert await page.locator(".heat rect").count() == 7 * 24
        told = await page.locator(".heat title").all_text_contents()
        thursday = (await site.get("/api/stats"))["heat_map"][3]
        assert f"{thursday[17]} lines, 02:00" in told  # of Friday, there
        assert told.index(f"{thursday[17]} lines, 02:00") == 4 * 24 + 2
        bars = page.locator(".bars title")
        await expect(bars).to_have_text(["Nov 2004: 172 lines", "Oct 2009: 584 lines"])
        await expect(page.locator(".top tbody tr").first).to_contain_text("Nafallo")
        await page.get_by_role("link", name="2009").click()
        await expect(bars).to_have_text(["2 Oct 2009: 584 lines"])
        await page.goto(f"{site.url}/stats?year=2006")
        await expect(page.get_by_text("No lines from 1 Jan 2006 to 31 Dec 2006.")).to_be_visible()
        await page.goto(f"{site.url}/calendar/irc/%23ubuntu")
        captions = await page.locator(".months caption").all_inner_texts()
        assert (len(captions), captions[0], captions[-1]) == (10, "January", "October 584")
        await expect(page.locator(".months a")).to_have_text(["1"])
        await page.keyboard.press("p")
        await page.wait_for_url("**?year=2008")
        await expect(page.locator(".months a")).to_have_count(0)
        await page.get_by_role("link", name="2004").click()
        await page.locator(".months a").click()
        await page.wait_for_url("**/channel/irc/%23ubuntu?day=2004-11-15&tz=UTC")
        await page.keyboard.press("n")
        await page.wait_for_url("**?day=2009-10-01&tz=UTC")
        # A nick leads to the page of the person.
        await site.said("hi", nick="nafallo", channel="#other")
        await site.said("a secret", nick="Nafallo", channel="eve")
        await page.goto(f"{site.url}/channel/irc/%23ubuntu?day=2004-11-15")
        await page.locator(".nick", has_text="Nafallo").first.click()
        await expect(page.locator("h1")).to_have_text("nafallo irc")
        assert (await page.locator(".figures dd").all_inner_texts())[:2] == ["49", "2"]
        await expect(page.locator(".top tbody tr")).to_contain_text(["#ubuntu", "#other"])
        await expect(page.locator(".found .line")).to_have_count(25)
        assert "a secret" not in await page.content()


async def test_everything_together_has_statistics_and_each_channel_a_small_line(
    site: WebSite,
) -> None:
    await site.said("now", channel="#busy")
    everything = await site.page("/stats")
    assert "Statistics of all channels" in everything
    assert "<dd>757</dd>" in everything
    page = await site.page("/")
    assert page.count("<polyline") == 1
    assert page.index("#busy") < page.index("<polyline") < page.index("#ubuntu")


async def test_pages_about_nothing_say_so(tmp_path: Path) -> None:
    async with web_site(tmp_path) as empty:
        for path, words in (
            ("/", "No lines yet"),
            ("/", "/join #terrarium"),
            ("/search", "Search the log</h2>"),
            ("/stats", "Nothing to count yet"),
        ):
            assert words in await empty.page(path)
        for path in ("/stats/irc/%23a", "/calendar/irc/%23a", "/person/nobody"):
            assert (await empty.http.get(path, headers=PAGE)).status_code == 404


async def test_a_day_of_the_calendar_is_a_day_of_the_zone(tmp_path: Path) -> None:
    late = event("good night", time=datetime(2026, 12, 31, 23, 30, tzinfo=UTC))
    async with web_site(tmp_path, events=[late]) as site:
        there = await site.page("/calendar/irc/%23ubuntu?tz=Europe/Vienna")
        assert "?day=2027-01-01&amp;tz=Europe%2FVienna" in there
        assert '?day=2026-12-31&amp;tz=UTC"' in await site.page("/calendar/irc/%23ubuntu")


PATHS = [
    ("/calendar/irc/%23ubuntu", 9),
    ("/stats/irc/%23ubuntu", 4),
    ("/channel/irc/%23ubuntu", 5),
    ("/channel/irc/%23ubuntu?before=9999999999999", 6),
    ("/channel/irc/%23ubuntu?day=2004-11-15", 8),
    ("/search?q=the&channel=irc/%23ubuntu", 5),
    ("/person/nafallo", 2),
    ("/", 1),
]


async def test_the_zone_of_an_address_is_kept_by_its_links(site: WebSite) -> None:
    link = re.compile(r'href="(/(?:channel|calendar|stats|search|text)[/?][^"#]*)')
    for path, least in PATHS:
        page = await site.page(f"{path}{'&' if '?' in path else '?'}tz=Asia/Tokyo")
        # A permalink shows one line and is short, like the addresses that people exchange.
        links = [each for each in link.findall(page) if "at=" not in each]
        assert len(links) >= least, path
        assert [each for each in links if "tz=Asia%2FTokyo" not in each] == []
        assert '<input type="hidden" name="tz" value="Asia/Tokyo">' in page


async def test_a_nick_is_one_person_on_each_network_and_bots_are_apart(tmp_path: Path) -> None:
    events = [
        *(event("here", nick="ada") for _ in range(2)),
        event("there", nick="Ada", network="other"),
        *(event("!help", nick="ubottu") for _ in range(9)),
        event("answer", nick="Terra", own=True),
    ]
    async with web_site(tmp_path, events=events) as site:
        page = await site.page("/person/ada")
        assert "<dd>2</dd>" in page
        assert 'href="/person/ada?network=other"' in page
        other = await site.page("/person/ada?network=other")
        assert ">there<" in other
        assert ">here<" not in other
        stats = await site.page("/stats")
        listed = [re.findall("/person/([a-z]+)", part.lower()) for part in stats.split("<h2>Bots")]
        assert listed == [["ada"], ["ubottu", "terra"]]


async def test_a_nick_of_any_characters_has_a_page(tmp_path: Path) -> None:
    nicks = ["a/b", "[x]{y}|", "..", "50%", "?", "#", "ünï", "<b>"]
    events = [event(f"I am {number}", nick=nick) for number, nick in enumerate(nicks)]
    async with web_site(tmp_path, events=events) as site:
        page = await site.page("/channel/irc/%23ubuntu")
        links = re.findall(r'class="nick[^>]* href="([^"]*)"', page)
        assert len(links) == len(nicks)
        for number, link in enumerate(links):
            if nicks[number] == "..":  # every client takes such a step itself
                continue
            assert f"I am {number}<" in await site.page(link), link
