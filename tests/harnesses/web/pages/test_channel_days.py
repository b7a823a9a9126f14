"""Whole days of a channel, in any time zone, as pages and as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path

from storage.chat_log.event import EventType
from tests.kit.web_site import WebSite, event, two_days, web_site

HERE = "/channel/irc/%23ubuntu"
ZURICH_NIGHT = [  # Switzerland goes back to winter time in this night
    event("still Saturday", time=datetime(2026, 10, 24, 21, 59, tzinfo=UTC)),
    event("Sunday begins", time=datetime(2026, 10, 24, 22, 0, tzinfo=UTC)),
    event("Sunday ends", time=datetime(2026, 10, 25, 22, 59, tzinfo=UTC)),
    event("already Monday", time=datetime(2026, 10, 25, 23, 0, tzinfo=UTC)),
]


SITE = {"events": ZURICH_NIGHT}


def said(page: str) -> list[str]:
    return re.findall(r'<span class="text" dir="auto">(.*?)</span>', page)


async def test_a_day_has_its_lines_and_leads_to_the_days_around_it(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=two_days()) as site:
        first = await site.page(f"{HERE}?day=2004-11-15")
        assert "Monday, 15 November 2004" in first
        assert len(said(first)) == 172
        assert f'rel="next" href="{HERE}?day=2009-10-01&amp;tz=UTC"' in first
        assert 'rel="prev"' not in first
        between = await site.page(f"{HERE}?day=2006-01-01")
        assert "Nobody has said anything on this day" in between
        assert f'rel="prev" href="{HERE}?day=2004-11-15&amp;tz=UTC"' in between
        assert f'rel="next" href="{HERE}?day=2009-10-01&amp;tz=UTC"' in between


async def test_days_are_of_the_zone_and_several_stand_on_one_page(site: WebSite) -> None:
    page = await site.page(f"{HERE}?day=2026-10-25&tz=Europe/Zurich")
    assert said(page) == ["Sunday begins", "Sunday ends"]
    assert "2026-10-25 00:00:00 CEST" in page
    assert "2026-10-25 23:59:00 CET" in page
    assert f'href="{HERE}?day=2026-10-24&amp;tz=Europe%2FZurich"' in page
    assert said(await site.page(f"{HERE}?day=2026-10-25")) == ["Sunday ends", "already Monday"]
    page = await site.page(f"{HERE}?day=2026-10-23&days=3&tz=Europe/Zurich")
    assert said(page) == ["still Saturday", "Sunday begins", "Sunday ends"]
    assert re.findall(r'data-day="([^"]*)"', page) == ["2026-10-24", "2026-10-25"]
    assert "23 Oct 2026 – 25 Oct 2026" in page
    page = await site.page(f"{HERE}?day=2026-10-25&tz=Europe/Zurich")  # leads to its hours
    (nav,) = re.findall(r'<nav class="hours".*?</nav>', page, re.S)
    hours = re.findall(r">(\d\d)<", nav)
    assert hours == [*("00", "01", "02", "02"), *(f"{hour:02}" for hour in range(3, 24))]
    first, last = re.findall(r'href="#e(\d+)" title="(.*?)"', nav)
    assert (first[1], last[1]) == ("00:00: 1 line", "23:00: 1 line")
    linked = await site.page(f"{HERE}?at={last[0]}&tz=Europe/Zurich")
    assert "<strong>25 Oct 2026, 23:59</strong>" in linked
    assert ">← All of 25 Oct 2026</a>" in linked


async def test_a_link_to_a_day_names_its_zone_and_a_zone_is_chosen_once(site: WebSite) -> None:
    page = await site.page(f"{HERE}?day=2026-10-24")
    (link,) = re.findall(r'rel="next" href="(.*?)"', page)
    answer = await site.http.get(unescape(link), headers={"cookie": "terrarium_zone=Asia/Tokyo"})
    assert said(answer.text) == ["Sunday ends", "already Monday"]
    form = {"zone": "Europe/Zurich", "next": f"{HERE}?day=2026-10-26"}
    chosen = await site.http.post("/zone", data=form)
    assert (chosen.status_code, chosen.headers["location"]) == (303, form["next"])
    assert said(await site.page(form["next"])) == ["already Monday"]
    assert "selected>Europe/Zurich<" in await site.page("/zone")
    chosen = await site.http.post("/zone", data=form | {"next": f"{HERE}?day=2026-10-26&tz=UTC"})
    assert chosen.headers["location"] == f"{HERE}?day=2026-10-26&tz=Europe%2FZurich"


async def test_what_is_no_zone_or_no_day_is_refused(site: WebSite) -> None:
    for zone in ["Mars/Base", "../../etc/passwd", "", "localtime", "a" * 200]:
        assert (await site.http.post("/zone", data={"zone": zone})).status_code == 422
        answer = await site.http.get(HERE, params={"tz": zone})
        assert answer.status_code == 422
        cookie = {"cookie": f"terrarium_zone={zone}"}
        assert (await site.http.get(HERE, headers=cookie)).status_code == 200
    days = "day=yesterday", "day=0001-01-01", "day=9999-12-31", "day=2004-11-15&days=8", "days=x"
    for query in days:
        for page in ("channel", "text"):
            answer = await site.http.get(f"/{page}/irc/%23ubuntu?{query}")
            assert answer.status_code == 422, page


async def test_a_day_of_many_lines_goes_on_on_a_second_page(tmp_path: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    events = [event(f"line {number}", time=noon) for number in range(803)]
    async with web_site(tmp_path, events=events) as site:
        page = await site.page(f"{HERE}?day=2026-03-01")
        assert len(said(page)) == 800
        further = re.search(r'href="([^"]*)">↓ More of this day', page)
        assert further
        rest = await site.page(further[1].replace("&amp;", "&"))
        assert said(rest) == ["line 800", "line 801", "line 802"]
        assert "↑ Older lines" in rest


async def test_the_nick_of_lines_in_a_row_is_shown_once(tmp_path: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    later = noon + timedelta(minutes=6)
    events = [
        event("one", time=noon),
        event("two", time=noon),
        event("waves", time=noon, type=EventType.ACTION),
        event("three", time=noon),
        event("between", time=noon, nick="bob"),
        event("four", time=noon),
        event("", time=noon, nick="bob", type=EventType.JOIN),
        event("five", time=noon),
        event("six", time=noon),
        event("much later", time=later),
    ]
    async with web_site(tmp_path, events=events) as site:
        page = await site.page(f"{HERE}?day=2026-03-01")
        lines = re.findall(r'<li class="line(.*?)".*?<span class="text"[^>]*>(.*?)<', page, re.S)
        assert [text for kind, text in lines if "same" in kind] == ["two", "six"]


async def test_a_day_can_be_had_as_plain_text(tmp_path: Path) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    events = [
        event("hello\x02 <b>", time=noon),
        event("waves", time=noon, type=EventType.ACTION),
        event("careful", time=noon, type=EventType.NOTICE, nick="Terra"),
        event("", time=noon, type=EventType.JOIN, nick="bob"),
    ]
    async with web_site(tmp_path, events=events) as site:
        answer = await site.http.get("/text/irc/%23ubuntu?day=2026-03-01&tz=Asia/Tokyo")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.text.splitlines() == [
            "# #ubuntu on irc, Sunday, 1 March 2026, times are Asia/Tokyo",
            "[21:00:00] <ada> hello <b>",
            "[21:00:00] * ada waves",
            "[21:00:00] -Terra- careful",
            "[21:00:00] *** bob joined",
        ]


async def test_short_and_permanent_addresses_lead_to_a_line(site: WebSite) -> None:
    message = (await site.get("/api/messages"))["messages"][1]
    found = await site.http.get(f"/line/{message['id']}", follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (307, message["link"])
    assert (await site.http.get("/line/77")).status_code == 404
    assert (await site.http.get("/line/no")).status_code == 422
    link = message["link"]
    assert link.startswith(f"{HERE}?at={message['id']}&time=2026-10-24T22:00:00Z#e")
    assert f'id="e{message["id"]}"' in await site.page(link)
    other = link.replace(f"at={message['id']}&", "at=77&")
    assert f'id="e{message["id"]}"' in await site.page(other)
    lost = await site.http.get(f"{HERE}?at=77&time=2027-01-01T00:00:00Z")
    assert lost.status_code == 404


async def test_today_goes_on_by_itself_and_yesterday_does_not(tmp_path: Path) -> None:
    old = event("long ago", time=datetime(2020, 1, 1, tzinfo=UTC))
    async with web_site(tmp_path, events=[old]) as site:
        await site.said("now")
        today = datetime.now(UTC).date()
        assert "data-tail=" in await site.page(f"{HERE}?day={today}&days=2")
        assert "data-tail=" not in await site.page(f"{HERE}?day=2020-01-01")
