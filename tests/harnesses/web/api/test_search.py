"""The search, as an API, a page and feeds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from playwright.async_api import expect

from storage.chat_log.event import EventType
from tests.kit.browser import PHONE, browser, visit
from tests.kit.web_site import WebSite, event, two_days, web_site

ATOM = "{http://www.w3.org/2005/Atom}"


async def test_a_result_says_what_was_found_and_a_wrong_cursor_is_refused(filled: WebSite) -> None:
    answer = await filled.get("/api/search", q="hdparm minimum")
    (found,) = answer["results"]
    snippet = found["snippet"]
    assert [snippet["text"][a:b] for a, b in snippet["marks"]] == ["minimum", "hdparm"]
    assert (answer["count"], answer["more_than_counted"]) == (1, False)
    assert answer["facets"]["nicks"] == [{"value": "Nafallo", "count": 1}]
    assert answer["facets"]["months"] == [{"value": "2004-11", "count": 1}]
    assert answer["facets"]["channels"] == [{"value": "irc/#ubuntu", "count": 1}]
    for cursor in ["x", "1.2", "-1.0.0", "9" * 99]:
        for path in ("/api/search", "/search"):
            answer = await filled.http.get(path, params={"q": "k3b", "cursor": cursor})
            assert answer.status_code == 422
            assert "cursor" in answer.json()["error"]["message"]


SEARCHES: list[tuple[dict[str, Any], list[str]]] = [
    ({"q": "frogs toads"}, ["frogs and toads"]),
    ({"q": "frogs toads", "mode": "or"}, ["toads", "frogs and toads", "frogs"]),
    ({"q": "and toads", "mode": "phrase"}, ["frogs and toads"]),
    ({"q": "toads frogs", "mode": "phrase"}, []),
    ({"q": "frogs -toads"}, ["frogs"]),
    ({"q": "toad*"}, ["toads", "frogs and toads"]),
    ({"q": "from:bob"}, ["new newts", "toads"]),
    ({"q": "frogs", "until": "2026-03-01T00:00:30Z"}, ["frogs"]),
    ({"q": "newts", "nick": "ada", "hours": 24}, ["newts"]),
]


async def test_the_language_and_the_modes_of_the_search(tmp_path: Path) -> None:
    now, march = datetime.now(UTC), datetime(2026, 3, 1, tzinfo=UTC)
    lines = [
        ("frogs", "ada", march),
        ("frogs and toads", "ada", march + timedelta(minutes=1)),
        ("toads", "bob", march + timedelta(minutes=2)),
        ("old newts", "ada", now - timedelta(hours=30)),
        ("newts", "ada", now),
        ("new newts", "bob", now),
    ]
    events = [event(text, nick=nick, time=time) for text, nick, time in lines]
    async with web_site(tmp_path, events=events) as site:
        for params, texts in SEARCHES:
            found = (await site.get("/api/search", **params))["results"]
            assert [result["text"] for result in found] == texts, params


async def test_pages_of_either_order_hold_every_line_once(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=two_days()) as site:
        for order in ("time", "rank"):
            params: dict[str, Any] = {"q": "ubuntu", "order": order}
            answer = await site.get("/api/search", limit=500, **params)
            whole = [result["id"] for result in answer["results"]]
            paged: list[int] = []
            while True:
                answer = await site.get("/api/search", limit=7, **params)
                paged += [result["id"] for result in answer["results"]]
                if not answer["next_cursor"]:
                    break
                assert answer["facets"] is None or len(paged) == 7
                params["cursor"] = answer["next_cursor"]
            assert paged == whole
            assert len(whole) > 14


async def test_the_page_narrows_by_a_click_and_widens_again(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=two_days()) as site, browser() as chromium:
        page = await visit(chromium, f"{site.url}/search?q=ubuntu", size=PHONE)
        everything = await page.locator(".found .line").count()
        month = page.locator("aside a", has_text="2004-11")
        count = int(await month.locator("xpath=following-sibling::span").inner_text())
        await month.click()
        await expect(page.locator(".found .line")).to_have_count(count)
        assert 0 < count < everything
        await page.get_by_label("at any time").click()
        await expect(page.locator(".found .line")).to_have_count(everything)
        await page.get_by_role("link", name="Best first").click()
        await expect(page.locator(".order span")).to_have_text("Best first")
        await expect(page.locator("mark").first).to_have_text(re.compile("ubuntu", re.I))


async def test_a_choice_without_words_lists_what_fits_it(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=two_days()) as site:
        await site.said("alone", channel="#other")
        for query, found in (
            ("nick=Nafallo", "48"),
            ("channel=irc/%23other", "1"),
            ("month=2004-11", "172"),
            ("month=2004-11&nick=Nafallo", "48"),
            ("month=2004-12", "0"),
        ):
            answer = await site.http.get(f"/search?{query}")
            counted = re.search(r'role="status">\s*<strong>(.*?)</strong>', answer.text)
            assert counted, query
            assert (query, counted[1]) == (query, found)


async def test_a_search_or_a_channel_is_a_feed_of_what_was_said(filled: WebSite) -> None:
    answer = await filled.http.get("/feed.atom?q=k3b&limit=3")
    assert answer.headers["content-type"] == "application/atom+xml; charset=utf-8"
    feed = ElementTree.fromstring(answer.text)
    assert feed.findtext(f"{ATOM}title") == "k3b · Terrarium"
    entries = feed.findall(f"{ATOM}entry")
    assert len(entries) == 3
    times = [str(entry.findtext(f"{ATOM}updated")) for entry in entries]
    assert times == sorted(times, reverse=True)
    assert feed.findtext(f"{ATOM}updated") == times[0]
    link = entries[0].findtext(f"{ATOM}id")
    assert link is not None
    assert link.startswith(f"{filled.url}/channel/irc/%23ubuntu?at=")
    assert (await filled.http.get(link)).status_code == 200
    await filled.said("one <b>", channel="#new")
    await filled.said("", channel="#new", type=EventType.JOIN)
    of_channel = await filled.get("/feed.json", channel="irc/#new")
    assert of_channel["version"] == "https://jsonfeed.org/version/1.1"
    assert [item["content_text"] for item in of_channel["items"]] == ["one <b>"]
    assert of_channel["items"][0]["authors"] == [{"name": "ada"}]
    assert of_channel["home_page_url"] == f"{filled.url}/search?channel=irc%2F%23new"


async def test_no_line_can_break_a_feed(tmp_path: Path) -> None:
    hostile = ["\x00\x0b\x1b]]>&<!--", "\ufffe\uffff", "<script>", "\u202e"]
    events = [event(f"{text} end", nick=text, channel=f"#{text}") for text in hostile]
    events.append(event("\ud800 end"))
    async with web_site(tmp_path, events=events) as site:
        feed = ElementTree.fromstring((await site.http.get("/feed.atom")).text)
        contents = [entry.findtext(f"{ATOM}content") for entry in feed.iter(f"{ATOM}entry")]
        assert len(contents) == len(events)
        assert all(content and content.endswith(" end") for content in contents)
        assert "&lt;script&gt; end" in contents
        assert len((await site.get("/feed.json"))["items"]) == len(events)


async def test_a_feed_s_address_may_have_a_token_and_shows_only_its_channels(
    tmp_path: Path,
) -> None:
    settings = {
        "token": "all-of-it",
        "tokens": {"reader": {"token": "feeds", "channels": ["irc/#open"]}},
    }
    events = [event("yes", channel="#open"), event("no", channel="#closed")]
    async with web_site(tmp_path, events=events, settings=settings) as site:
        assert (await site.http.get("/feed.json")).status_code == 401
        assert (await site.http.get("/feed.json?token=wrong")).status_code == 401
        feed = (await site.http.get("/feed.json?token=feeds")).json()
        assert [item["content_text"] for item in feed["items"]] == ["yes"]
        assert "token" not in feed["feed_url"]
        assert (await site.http.get("/api/messages?token=feeds")).status_code == 303
