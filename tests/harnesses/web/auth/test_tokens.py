"""Tokens for some channels, channels for everybody, and other sites."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harnesses.web.settings import WebSettings
from storage.db.database import Database
from storage.queues.outbox import Outbox
from terrarium.config import Config, ConfigError
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import PAGE, WebSite, bearer, event, web_site

OPEN, CLOSED = "#open", "#closed"
SETTINGS = {
    "token": "all-of-it",
    "tokens": {"guests": {"token": "only-open", "channels": ["irc/#OPEN"]}},
}
GUEST, OWNER = bearer("only-open"), bearer("all-of-it")
SECRET = "the newts are in the cellar"
EVENTS = [
    event("the frogs are awake", channel=OPEN),
    event(SECRET, channel=CLOSED, nick="mole"),
    event(f"private {SECRET}", channel="ada", nick="mole"),
]
EVERYWHERE = """
/api/channels /api/stats /api/stats?nick=mole /api/search?q=newts
/api/messages /api/messages?channel=irc/%23closed /api/messages?nick=mole /api/messages.jsonl
/api/messages/2/context /api/messages/3/context
/ /channel/irc/%23closed /channel/irc/ada /channel/irc/%23open?at=2 /line/2
/search?q=newts /search?nick=mole
"""
SITE: dict[str, Any] = {"events": EVENTS, "settings": SETTINGS}


async def texts(site: WebSite, headers: Mapping[str, str]) -> list[str]:
    answer = await site.http.get("/api/messages", headers=headers)
    return [message["text"] for message in answer.json()["messages"]]


async def test_a_token_or_a_login_with_it_opens_its_channels_and_no_other(site: WebSite) -> None:
    assert await texts(site, GUEST) == ["the frogs are awake"]
    assert await texts(site, OWNER) == ["the frogs are awake", SECRET]
    for path in EVERYWHERE.split():
        answer = await site.http.get(path, headers=GUEST | PAGE)
        assert SECRET not in answer.text, path
        assert 'class="line' not in answer.text or "frogs" in answer.text, path
        echo = path.partition("?")[2] or path.rpartition("/")[2]  # what was asked may come back
        if "mole" not in echo:
            assert "mole" not in answer.text, path
        if "closed" not in echo:
            assert "closed" not in answer.text, path
    await site.http.post("/login", data={"token": "only-open"})
    assert await texts(site, {}) == ["the frogs are awake"]
    assert (await site.http.get("/channel/irc/%23closed", headers=PAGE)).status_code == 404
    assert (await site.http.get("/tendrils", headers=PAGE)).status_code == 303
    assert "Tendrils" not in await site.page("/")


async def test_an_account_signs_in_by_name_with_its_own_rights_and_by_no_link(
    tmp_path: Path,
) -> None:
    settings = {
        **SETTINGS,
        "accounts": {
            "ada": {"token": "adas-own", "admin": True, "identities": ["irc/ada"]},
            "bob": {"token": "bobs-own", "channels": ["irc/#open"]},
            "carl": {"token": "carls-own"},
        },
    }
    operators_pages = {"adas-own": 200, "bobs-own": 303, "carls-own": 303}
    async with web_site(tmp_path, events=EVENTS, settings=settings) as site:
        for token, status in operators_pages.items():
            site.http.cookies.clear()
            await site.http.get(f"/?token={token}")  # anybody can write a link with their own token
            assert (await site.http.get("/chat", headers=PAGE)).status_code == 303
            await site.http.post("/login", data={"token": token})
            assert token.partition("s-")[0] in await site.page("/")
            assert (await site.http.get("/runs", headers=PAGE)).status_code == status
            await site.http.get("/?token=only-open")  # nor does a link end a login
            seen = await texts(site, {})
            assert (SECRET in seen) is (token != "bobs-own")
    both = {"token": "x", "admin": True, "channels": ["irc/#open"]}
    for accounts, problem in (
        ({"x": both}, "sees all public channels"),
        ({"x": {"token": "t"}}, "accounts.x has the same token as token"),
        ({"x": {"token": "x"}, "y": {"token": "x"}}, "accounts.y has the same token as accounts.x"),
        ({"x": {"token": "x"}, "X": {"token": "y"}}, "accounts.X has .* the same name"),
    ):
        config = Config({"web": {"token": "t", "accounts": accounts}}, None, tmp_path)
        with pytest.raises(ConfigError, match=problem):
            config.section(WebSettings)


async def test_a_stream_stays_within_the_channels_of_its_token(site: WebSite) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        site.http.stream("GET", "/api/stream?after_id=0", headers=GUEST) as stream,
    ):
        await site.said(SECRET, channel=CLOSED)
        await site.said("later", channel=OPEN)
        seen = ""
        async for line in stream.aiter_lines():
            seen += line
            if "later" in line:
                break
        assert "frogs" in seen
        assert "newts" not in seen


async def test_the_chat_looks_up_only_what_the_visitor_may_read(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    async with web_site(tmp_path, **SITE, agent_url=script.url) as site:
        for headers in (GUEST, OWNER):
            site.http.cookies.clear()
            script.call("search_log", {"query": "newts"}).say("That is all.")
            await site.http.post("/chat", json={"text": "where are they?"}, headers=headers)
        guest, owner = (script.requests[number]["messages"][-1]["content"] for number in (1, 3))
        assert "no line has newts" in guest
        assert SECRET in owner


async def test_a_public_channel_needs_no_token_and_may_be_listed(tmp_path: Path) -> None:
    settings = {**SETTINGS, "public": ["irc/#open"]}
    async with web_site(tmp_path, events=EVENTS, settings=settings) as site:
        assert await texts(site, {}) == ["the frogs are awake"]
        listed = await site.http.get("/channel/irc/%23open", headers=PAGE)
        assert listed.status_code == 200
        assert "x-robots-tag" not in listed.headers
        assert "/login?next=" in listed.text
        search = await site.http.get("/search?q=frogs", headers=PAGE)
        assert search.headers["x-robots-tag"] == "noindex"
        for path in EVERYWHERE.split():
            answer = await site.http.get(path, headers=PAGE)
            assert SECRET not in answer.text, path
        for path in ("/chat", "/tendrils"):
            sent = await site.http.get(path, headers=PAGE)
            assert sent.headers["location"].startswith("/login"), path
        assert (await site.http.post("/chat", json={"text": "hello"})).status_code == 401
        assert await texts(site, bearer("wrong")) == ["the frogs are awake"]


async def test_a_known_answer_is_not_sent_again_and_a_long_one_compressed(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=EVENTS) as site:
        for path in ("/api/messages", "/api/channels", "/channel/irc/%23open"):
            first = await site.http.get(path)
            assert first.headers["cache-control"] == "private, no-cache"
            known = {"if-none-match": f'"x", {first.headers["etag"]}'}
            again = await site.http.get(path, headers=known)
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["etag"] == first.headers["etag"]
        for number in range(100):
            await site.said(f"news {number}", channel=OPEN)
        changed = await site.http.get("/api/messages", headers=known)
        assert changed.status_code == 200
        # A long answer is compressed, but not for another site.
        answer = await site.http.get("/api/messages")
        assert answer.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in answer.headers["vary"]
        for origin in ("cross-site", "same-site"):
            headers = {"sec-fetch-site": origin}
            plain = await site.http.get("/api/messages", headers=headers)
            assert "content-encoding" not in plain.headers
            assert plain.content == answer.content
            assert plain.headers["etag"] == answer.headers["etag"]


async def test_no_other_site_may_read_unless_it_is_named(tmp_path: Path) -> None:
    friend = {"origin": "https://friend.example", "access-control-request-method": "GET"}
    async with web_site(tmp_path / "closed", events=EVENTS) as site:
        answer = await site.http.get("/api/messages", headers=friend)
        assert not [name for name in answer.headers if name.startswith("access-control")]
    settings = {**SETTINGS, "cors_origins": ["https://friend.example"]}
    async with web_site(tmp_path / "open", events=EVENTS, settings=settings) as site:
        asked = {**friend, "access-control-request-headers": "authorization"}
        preflight = await site.http.options("/api/messages", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://friend.example"
        answer = await site.http.get("/api/messages", headers={**friend, **OWNER})
        assert answer.headers["access-control-allow-origin"] == "https://friend.example"
        assert "access-control-allow-credentials" not in answer.headers
        stranger = {**OWNER, "origin": "https://stranger.example"}
        refused = await site.http.get("/api/messages", headers=stranger)
        assert "access-control-allow-origin" not in refused.headers
        page = await site.http.get("/", headers={**friend, **OWNER})
        assert "access-control-allow-origin" not in page.headers


async def test_only_a_token_that_may_has_the_bot_say_something_on_its_channels(
    tmp_path: Path,
) -> None:
    settings = {
        "token": "all-of-it",
        "public": ["irc/#open"],
        "tokens": {
            "guests": {"token": "only-open", "channels": ["irc/#open"]},
            "ci": {"token": "only-ci", "channels": ["irc/#open", "old/#open"], "say": True},
        },
        "accounts": {"ada": {"token": "ada-s-own", "say": True}},
    }
    ada, ci = bearer("ada-s-own"), bearer("only-ci")
    events = [*EVENTS, event("imported", network="old", channel=OPEN)]
    async with web_site(tmp_path, events=events, settings=settings) as site:

        async def say(
            headers: Mapping[str, str], channel: str, text: str = "hi", **more: str
        ) -> int:
            params = {"channel": channel, **more}
            answer = await site.http.post("/api/say", params=params, content=text, headers=headers)
            assert ("error" in answer.json()) is (answer.status_code != 202)
            return answer.status_code

        refused = [
            await say({}, "irc/#open"),
            await say(GUEST, "irc/#open"),
            await say(ci, "irc/#closed"),
            await say(ci, "ada"),
            await say(ci, "old/#open"),  # an imported log: we are not there
            await say(ci, "irc/#open", "\n "),
            await say(ci, "irc/#open", "x" * 2001),
            await say(OWNER, "irc/#nowhere"),
            await say({**ci, "origin": "https://evil.example"}, "irc/#open"),
        ]
        assert refused == [401, 403, 404, 422, 404, 422, 422, 404, 403]
        assert await say(ci, "#OPEN", "the build\nis red", key="7") == 202
        assert await say(ci, "irc/#open", "the build\nis red", key="7") == 202
        assert await say(OWNER, "irc/#closed", "as the owner", key="7") == 202
        assert await say(ada, "irc/#open", "it is me\n<bob> and me", key="8") == 202
        assert 429 in [await say(ci, "irc/#open", f"flood {number}") for number in range(4)]
        async with Database.open(tmp_path / "outbox.db") as database:
            waiting = await Outbox(database).list_unsent()
        assert [(str(each.place), each.text) for each in waiting[:3]] == [
            ("irc/#open", "the build\nis red"),
            ("irc/#closed", "as the owner"),
            ("irc/#open", "<ada> it is me\n<ada> <bob> and me"),
        ]
        for network, headers, may in (("irc", ci, True), ("irc", {}, False), ("old", ci, False)):
            page = await site.http.get(f"/channel/{network}/%23open", headers=PAGE | headers)
            assert ('id="say"' in page.text) is may
