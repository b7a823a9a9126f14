"""The page for the setup: for whoever has its link on this machine, until there is a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import httpx2
import pytest
from playwright.async_api import Browser, expect

from harnesses.core.addresses import RunningUp, published_up_file
from storage.db.process_lock import hold_lock
from terrarium.config import FILE
from tests.kit.axe import barriers
from tests.kit.browser import DESKTOP, PHONE, visit
from tests.kit.command import line_with, terrarium
from tests.kit.ircd import ngircd
from tests.kit.patience import PATIENCE
from tests.kit.services import services_network
from tests.kit.terrarium import PULLING, terrarium_up
from tests.kit.web_site import PAGE, WebSite, bearer, web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "the-token-of-the-link"
LINK = f"/setup?token={TOKEN}"
PASSWORD = 'frogs\x7f "sing" \\ at night '


@asynccontextmanager
async def new_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebSite]:
    """Run the tendril as a `terrarium up` does that has no configuration file in `folder`."""
    monkeypatch.chdir(folder)
    running = RunningUp(pid=os.getpid(), server="", web=None, irc_port=1, key="", setup=TOKEN)
    data = folder / "data"
    data.mkdir()
    with hold_lock(data, "up", "terrarium up"), published_up_file(data, running):
        async with web_site(data) as site:
            yield site


async def test_the_setup_is_refused_to_all_but_the_link_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_site(tmp_path, monkeypatch) as site:
        for link, headers, words in (
            ("/setup", {}, "has printed"),
            ("/setup?token=another", {}, "has printed"),
            (LINK, {"X-Forwarded-For": "127.0.0.1"}, "without a proxy"),
            (LINK, {"Forwarded": "for=127.0.0.1"}, "without a proxy"),
            (LINK, {"Host": "rebound.example"}, "loopback names"),
            (LINK, {"Origin": "http://elsewhere.example"}, "a page of this site"),
            (LINK, {"Sec-Fetch-Site": "cross-site"}, "a page of this site"),
        ):
            answer = await site.http.post(link, data={"action": "write"}, headers=PAGE | headers)
            assert (answer.status_code, words in answer.text) == (403, True), headers
            assert answer.headers["content-type"].startswith("text/html")
            assert not (tmp_path / FILE).exists()


@pytest.mark.process
async def test_the_setup_is_refused_to_other_machines_by_name_though_a_token_opens_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_TOKEN", "frogs" * 5)
    async with new_site(tmp_path, monkeypatch) as site:
        elsewhere = bearer("frogs" * 5) | {"Host": "logs.example"}
        assert (await site.http.get(LINK, headers=elsewhere)).status_code == 403
        assert (await site.http.get(LINK)).status_code == 200


@pytest.mark.process
async def test_a_check_logs_in_and_the_password_is_kept_for_that_server_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IRC_TLS_VERIFY", "false")  # its certificate is its own
    (tmp_path / "network").mkdir()
    async with (
        services_network(tmp_path / "network") as network,
        network.running(),
        ngircd() as another,
        new_site(tmp_path, monkeypatch) as site,
    ):
        form = {"model": "built-in", "server": f"127.0.0.1:{network.tls_port}", "nick": "Fern"}
        form |= {"account": "Account", "tls": "on", "channels": "pond, &frogs", "admin": "alice"}
        pages = []

        async def send(**fields: str) -> httpx2.Response:
            pages.append(await site.http.post(LINK, data=form | fields))
            return pages[-1]

        answer = await send(action="check", password="sesame")
        assert "connected as Fern, logged in as Account" in answer.text
        assert "sesame" not in answer.text
        assert "logged in as Account" in (await send(action="check")).text
        elsewhere = await send(action="check", server=f"127.0.0.1:{another.port}", tls="")
        assert "connected as Fern" in elsewhere.text
        assert 'placeholder="as typed before"' not in elsewhere.text
        assert "not logged in by SASL" in (await send(action="check", password=PASSWORD)).text
        wrong = await send(action="write", nick="no nick")
        assert (wrong.status_code, "[irc] nick" in wrong.text) == (422, True)
        assert not (tmp_path / FILE).exists()

        done = await send(action="write", password=PASSWORD, shown="on")
        assert (done.status_code, "is written" in done.text) == (200, True)
        assert (tmp_path / FILE).stat().st_mode & 0o077 == 0
        written = tomllib.loads((tmp_path / FILE).read_text("utf-8"))
        token = written["web"].pop("token")
        assert written == {
            "irc": {
                "server": "127.0.0.1",
                "port": network.tls_port,
                "tls": True,
                "nick": "Fern",
                "channels": ["#pond", "&frogs"],
                "admins": ["alice"],
                "sasl_password": PASSWORD,
                "sasl_username": "Account",
                "sasl_required": True,
            },
            "web": {"host": "0.0.0.0"},
        }
        assert (await site.http.get(LINK)).status_code == 404
        assert (await send(action="write", nick="Moss")).status_code == 404
        assert "Fern" in (tmp_path / FILE).read_text("utf-8")
    seen = "".join((*(each.text for each in pages), *capfd.readouterr()))
    assert [word for word in (PASSWORD, "sesame", token) if word in seen] == []
    assert (await terrarium("config", "check", cwd=tmp_path)).status == 0


async def test_a_file_that_appears_in_between_is_not_overwritten_by_the_setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with new_site(tmp_path, monkeypatch) as site:
        (tmp_path / FILE).symlink_to("elsewhere.toml")  # it is there, and leads nowhere
        assert (await site.http.get(LINK)).status_code == 404
        assert (await site.http.post(LINK, data={"action": "write"})).status_code == 404
        assert not (tmp_path / "elsewhere.toml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
async def test_everything_starts_again_with_the_file_that_the_page_has_written(
    chromium: Browser, tmp_path: Path, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    async with terrarium_up(tmp_path) as up:
        link = (await line_with(up.process.stdout, "  set up")).split()[-1]
        page = await visit(chromium, link, size=size, scheme=scheme)
        assert await barriers(page) == []
        assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        await page.get_by_label("built-in").check()
        await page.get_by_label("The bot's nick").fill("Fern")
        await page.get_by_label("Show the pages").check()
        await page.get_by_role("button", name="Check").click()
        await expect(page.get_by_role("status")).to_contain_text("The answers are valid")
        await page.get_by_role("button", name="Write").click()
        await expect(page.get_by_role("heading")).to_have_text("terrarium.toml is written")
        assert await barriers(page) == []

        await line_with(up.process.stdout, "ready", PATIENCE + PULLING)
        await page.goto(up.web)  # this browser is logged in
        await expect(page.get_by_role("heading", name="Channels")).to_be_visible()
        assert (await page.goto(link)).status == 404  # type: ignore[union-attr]
