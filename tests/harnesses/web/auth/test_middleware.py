"""Who may come in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import httpx2
import pytest

from tests.kit.web_site import PAGE, WebSite, bearer, event, web_site

TOKEN = "frogs-are-awake"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[WebSite]:
    """A site with a token."""
    async with web_site(tmp_path, settings={"token": TOKEN}) as found:
        yield found


async def test_only_the_token_opens_under_any_name_and_health_needs_none(closed: WebSite) -> None:
    for path in ["/api/messages", "/api/stream", "/openapi.json", "/", "/chat", "/channel/irc/a"]:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic abc"}):
            answer = await closed.http.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer" in answer.json()["error"]["message"]
    evasions = "/health%23", "/login%3F/../api/messages", "/%2e%2e/api/messages", "//api/messages"
    for path in evasions:
        assert (await closed.http.get(path)).status_code in (401, 404), path
    headers = {"authorization": f"bearer {TOKEN}"}
    assert (await closed.http.get("/api/messages", headers=headers)).status_code == 200
    assert (await closed.http.get("/health")).status_code == 200
    headers = bearer(TOKEN) | {"host": "logs.example"}
    assert (await closed.http.get("/api/channels", headers=headers)).status_code == 200


async def test_a_browser_is_sent_to_the_login_and_back_and_nowhere_else(closed: WebSite) -> None:
    async def login(token: str) -> httpx2.Response:
        return await closed.http.post("/login", data={"token": token, "next": "/search?q=frogs"})

    sent = await closed.http.get("/search?q=frogs", headers=PAGE)
    assert sent.headers["location"] == "/login?next=%2Fsearch%3Fq%3Dfrogs"
    head = await closed.http.head("/search?q=frogs", headers=PAGE)
    assert head.headers["location"] == sent.headers["location"]
    form = await closed.http.get(sent.headers["location"])
    assert 'value="/search?q=frogs"' in form.text
    wrong = await login("wrong")
    assert (wrong.status_code, "not the token" in wrong.text) == (401, True)
    right = await login(TOKEN)
    assert (right.status_code, right.headers["location"]) == (303, "/search?q=frogs")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert (await closed.http.get("/", headers=PAGE)).status_code == 200
    for target in ["https://evil.example/", "//evil.example", "/\\evil.example"]:
        answer = await closed.http.post("/login", data={"token": TOKEN, "next": target})
        assert answer.headers["location"] == "/"


async def test_a_token_in_the_address_logs_in_and_vanishes_from_it(closed: WebSite) -> None:
    answer = await closed.http.get(f"/search?q=a%26b&token={TOKEN}", headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/search?q=a%26b")
    assert (await closed.http.get("/search?q=a")).status_code == 200
    closed.http.cookies.clear()
    sent = await closed.http.get("/channel/irc/%23a?at=1", headers=PAGE)
    assert sent.headers["location"] == "/login?next=%2Fchannel%2Firc%2F%2523a%3Fat%3D1"
    answer = await closed.http.get(f"/channel/irc/%23a?at=1&token={TOKEN}", headers=PAGE)
    assert answer.headers["location"] == "/channel/irc/%23a?at=1"


async def test_a_name_that_is_not_loopback_is_refused_without_a_token(site: WebSite) -> None:
    for host in ("evil.example", "evil.example:8081", "localhost.evil.example", "10.0.0.1", "["):
        answer = await site.http.get("/api/channels", headers={"host": host})
        assert answer.status_code == 403, host
        assert "WEB_TOKEN" in answer.json()["error"]["message"]
    for host in ("localhost", "LOCALHOST:1234", "127.0.0.1:8081", "[::1]:8081"):
        answer = await site.http.get("/api/channels", headers={"host": host})
        assert answer.status_code == 200, host


async def test_only_our_own_pages_can_post(site: WebSite) -> None:
    for headers in [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
    ]:
        for path in ("/chat", "/chat/0/forget", "/login", "/logout"):
            answer = await site.http.post(path, json={"text": "hi"}, headers=headers)
            assert answer.status_code == 403
    answer = await site.http.post("/chat/0/forget", headers={"origin": site.url})
    assert answer.status_code == 303


async def test_every_answer_also_a_failure_protects_readers(site: WebSite, tmp_path: Path) -> None:
    for path in ["/", "/api/channels", "/nothing", "/static/site.css", "/health"]:
        assert_protecting((await site.http.get(path)).headers)
    with closing(connect(tmp_path / "irc.db")) as file:
        file.execute("ALTER TABLE channels RENAME TO gone")
    answer = await site.http.get("/api/channels")
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "internal_error")
    assert_protecting(answer.headers)


def assert_protecting(headers: httpx2.Headers) -> None:
    assert headers["x-robots-tag"] == "noindex"
    assert headers["cache-control"] == "private, no-cache"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]


async def test_the_head_of_an_answer_can_be_asked_for_alone(site: WebSite) -> None:
    plain = {"accept-encoding": "identity"}
    for path in ["/", "/api/channels", "/static/site.css"]:
        head = await site.http.head(path, headers=plain)
        whole = await site.http.get(path, headers=plain)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))


NAMES = ("page", "place", "path", "request", "state", "scope", "self", "name", "network", "query")
STRANGE = "&".join(f"{name}=//evil.example/" for name in NAMES)
ABOUT_A = ["/channel/irc/A", "/channel/irc/%23a", "/calendar/irc/a", "/stats/irc/a", "/text/irc/a"]
PATHS = [*ABOUT_A, "/", "/stats", "/person/ada", "/search", "/feed.atom", "/feed.json", "/zone"]


async def test_parameters_that_nobody_asked_for_lead_nowhere(tmp_path: Path) -> None:
    async with web_site(tmp_path, events=[event("hello", channel="#a")]) as site:
        for path in PATHS:
            known = "?q=a&day=2026-03-01&" if path.startswith(("/text", "/feed")) else "?"
            answer = await site.http.get(f"{path}{known}{STRANGE}", headers=PAGE)
            assert answer.status_code in (200, 307), answer.text
            location = answer.headers.get("location", "/channel/irc/%23a?")
            assert location.startswith("/channel/irc/%23a?"), path
