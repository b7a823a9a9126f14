"""Logging in and out with a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from playwright.async_api import expect

from tests.kit.browser import browser, visit
from tests.kit.data_files import files_with
from tests.kit.patience import PATIENCE
from tests.kit.web_site import WebSite, web_site

TOKEN = "frogs-are-awake"
COOKIE = "terrarium_login"


async def log_in(http: httpx2.AsyncClient) -> str:
    """Log a client in; return its cookie."""
    answer = await http.post("/login", data={"token": TOKEN, "next": "/"})
    assert answer.status_code == 303
    return str(http.cookies[COOKIE])


async def status_with(site: WebSite, cookie: str) -> int:
    """Return the status of the API for whoever has this cookie."""
    async with site.client(cookie=f"{COOKIE}={cookie}") as http:
        return (await http.get("/api/channels")).status_code


@asynccontextmanager
async def following(site: WebSite, cookie: str) -> AsyncIterator[AsyncIterator[str]]:
    """Follow the log with this cookie; yields the lines that have data, once it has begun."""
    async with (
        site.client(cookie=f"{COOKIE}={cookie}") as http,
        http.stream("GET", "/api/stream") as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith("id:")
        yield (line async for line in lines if line.startswith("data:"))


async def test_after_a_logout_a_copied_cookie_and_an_open_stream_tell_nothing(
    tmp_path: Path,
) -> None:
    async with web_site(tmp_path, settings={"token": TOKEN}) as site, site.client() as other:
        copied, others = await log_in(site.http), await log_in(other)
        assert copied != others
        assert await status_with(site, copied) == 200
        answer = await site.http.post("/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert COOKIE not in site.http.cookies
        assert await status_with(site, copied) == 401
        assert await status_with(site, others) == 200
        copied, others = await log_in(site.http), await log_in(other)
        async with (
            asyncio.timeout(PATIENCE),
            following(site, copied) as ended,
            following(site, others) as going_on,
        ):
            await site.said("before")
            assert "before" in await anext(ended)
            assert "before" in await anext(going_on)
            await site.http.post("/logout")
            await site.said("after")
            assert "after" in await anext(going_on)
            assert [line async for line in ended] == []


async def test_a_login_outlives_a_restart_and_ends_with_its_token(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings={"token": TOKEN}) as site:
        cookie = await log_in(site.http)
    assert files_with(tmp_path, cookie, TOKEN) == []
    async with web_site(tmp_path, settings={"token": TOKEN}) as site:
        assert await status_with(site, cookie) == 200
    async with web_site(tmp_path, settings={"token": "another-token"}) as site:
        assert await status_with(site, cookie) == 401


async def test_the_button_logs_out(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings={"token": TOKEN}) as site, browser() as chromium:
        page = await visit(chromium, f"{site.url}/?token={TOKEN}")
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await page.goto(f"{site.url}/chat")
        await expect(page).to_have_url(f"{site.url}/login?next=%2Fchat")
