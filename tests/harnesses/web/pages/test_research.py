"""The page of a report, for readers who may read all, some or none of it."""

from __future__ import annotations

import re
from pathlib import Path

from storage.chat_log.event import PUBLIC, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.queues.reminders import Owner
from storage.queues.reports import Claim, ReportContent, Reports, Topic
from tests.kit.web_site import CHANNEL, NETWORK, WebSite, bearer, event, web_site

HERE, THERE, PRIVATE = (Place(NETWORK, name) for name in (CHANNEL, "#herbs", "bob!bob@host"))
TOKENS = {"here": [str(HERE)], "both": [str(HERE), str(THERE)], "elsewhere": ["irc/#elsewhere"]}
SETTINGS = {
    "token": "all-of-it-0123456789",
    "tokens": {name: {"token": f"{name}-0123456789", "channels": c} for name, c in TOKENS.items()},
}
BOTH = Scope.from_places(HERE, THERE)
LINES = (event("thyme likes sun", nick="zoe"), event("mint likes shade", channel="#herbs"))
SITE = {"events": LINES, "settings": SETTINGS}


async def report_in(site: WebSite, place: Place, scope: Scope) -> str:
    """Store a report with a claim about each line, and return its id."""
    reports, (first, second) = Reports(site.log.database), site.ids
    owner = Owner(NETWORK, "bob")
    token = await reports.add(place, owner, "bob", 0, "what likes <b>sun</b>?", scope)
    report = await reports.get(token) if token else None
    assert token
    assert report
    claims = [Claim(text="Thyme does.", lines=[first]), Claim(text="Mint not.", lines=[second])]
    content = ReportContent(topics=[Topic(title="Sun", claims=claims, is_done=True)])
    assert await reports.save(report, content, ends=True)
    return token


async def test_a_report_is_for_who_may_read_its_channel_and_shows_what_they_may_read(
    site: WebSite,
) -> None:
    for place, token, shown in (
        (HERE, "all-of-it-0123456789", ["Thyme does.", "Mint not."]),
        (HERE, "here-0123456789", ["Thyme does."]),
        (HERE, "both-0123456789", ["Thyme does.", "Mint not."]),
        (HERE, "elsewhere-0123456789", []),
        (HERE, "", []),
        (THERE, "here-0123456789", []),
        (PRIVATE, "elsewhere-0123456789", ["Thyme does.", "Mint not."]),  # who has its address
        (PRIVATE, "", []),
    ):
        name, headers = await report_in(site, place, BOTH), bearer(token)
        page = (await site.http.get(f"/research/{name}", headers=headers)).text
        assert [text for text in ("Thyme does.", "Mint not.") if text in page] == shown, token
        assert ("what likes &lt;b&gt;sun&lt;/b&gt;?" in page) == bool(shown)
        assert "<b>" not in page
        # Nothing of another report is found by guessing.
        assert (await site.http.get("/research/x", headers=headers)).status_code in (401, 404)


async def test_lines_of_who_has_opted_out_are_not_shown(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=LINES) as site:
        name = await report_in(site, HERE, PUBLIC)
        await OptOuts(site.log.database).add(NETWORK, Identity("zoe"))
        page = (await site.http.get(f"/research/{name}")).text
    assert "Thyme" not in page
    assert "Mint not." in page
    assert "1 further claim rests" in page


async def test_what_a_browser_has_asked_for_it_can_have_forgotten(chat: WebSite) -> None:
    await chat.http.get("/chat/new", follow_redirects=True)
    link = re.search(r"/research/[\w-]+", str(await chat.ask(".research what likes sun?")))
    assert link
    assert (await chat.http.get(link[0])).status_code == 200
    assert "1 report" in str(await chat.ask(".forget me"))
    assert (await chat.http.get(link[0])).status_code == 404
