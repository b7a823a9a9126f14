"""Guessing tokens takes time, and so does asking without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest

from harnesses.web.auth.tokens import MAX_DELAY, OPERATOR, THRESHOLD, LoginDelays, Viewer
from storage.chat_log.event import PUBLIC
from tests.kit.web_site import WebSite, bearer, web_site

SETTINGS = {
    "token": "all-of-it",
    "tokens": {"guests": {"token": "only-open", "channels": ["irc/#open"]}},
}
SITE = {"settings": SETTINGS}


def test_delays_double_up_to_the_longest_for_one_address_only_and_end_after_an_hour() -> None:
    now, seen = 1000.0, []
    delays = LoginDelays(lambda: now)
    for number in range(THRESHOLD + 12):
        assert delays.check("192.0.2.1", f"guess {number}", None) == 0
        seen.append(delays.wait("192.0.2.1"))
        now += seen[-1]
        assert delays.wait("192.0.2.1") == 0
    assert seen[: THRESHOLD + 2] == [0.0] * (THRESHOLD - 1) + [1.0, 2.0, 4.0]
    assert seen[-1] == MAX_DELAY
    assert delays.wait("192.0.2.2") == 0
    delays.check("192.0.2.1", "guests", Viewer(PUBLIC))
    delays.check("192.0.2.1", "another guess", None)
    assert delays.check("192.0.2.1", "all of it", OPERATOR) == MAX_DELAY
    now += MAX_DELAY
    assert delays.check("192.0.2.1", "all of it", OPERATOR) == 0
    delays.check("192.0.2.1", "another guess", None)
    assert delays.wait("192.0.2.1") == 0
    for number in range(2_000):  # more than a float has powers of two
        now += delays.wait("192.0.2.1")
        delays.check("192.0.2.1", f"guess {number}", None)
    now += 3601
    assert delays.wait("192.0.2.1") == 0
    delays.check("192.0.2.1", "another guess", None)
    assert delays.wait("192.0.2.1") == 0


async def by_form(site: WebSite, token: str) -> httpx2.Response:
    return await site.http.post("/login", data={"token": token})


async def by_header(site: WebSite, token: str) -> httpx2.Response:
    return await site.http.get("/api/channels", headers=bearer(token))


async def by_address(site: WebSite, token: str, path: str = "/search") -> httpx2.Response:
    return await site.http.get(path, params={"token": token})


WAYS = (by_form, by_header, by_address, partial(by_address, path="/feed.json"))


@pytest.mark.parametrize("way", WAYS)
async def test_after_some_wrong_tokens_the_right_one_has_to_wait_however_it_comes(
    site: WebSite, way: Callable[[WebSite, str], Awaitable[httpx2.Response]]
) -> None:
    for number in range(THRESHOLD):
        assert (await way(site, f"guess {number}")).status_code == 401
    answers = await asyncio.gather(*(each(site, "all-of-it") for each in WAYS))  # within a second
    assert [each.status_code for each in answers] == [429] * len(WAYS)
    assert all(int(each.headers["retry-after"]) >= 1 for each in answers)


async def test_a_token_that_has_ended_and_others_who_guess_lock_nobody_out(site: WebSite) -> None:
    for _ in range(3 * THRESHOLD):
        assert (await by_header(site, "the one of last year")).status_code == 401
    assert (await by_header(site, "all-of-it")).status_code == 200
    assert (await by_form(site, "all-of-it")).status_code == 303
    for number in range(THRESHOLD):
        await by_header(site, f"guess {number}")
    assert (await by_header(site, "all-of-it")).status_code == 429
    assert (await site.http.get("/runs")).status_code == 200  # by its cookie


async def test_a_link_with_a_narrow_token_leaves_a_wide_login_as_it_is(site: WebSite) -> None:
    await site.http.post("/login", data={"token": "all-of-it"})
    answer = await site.http.get("/search?token=only-open")
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers
    assert (await site.http.get("/runs")).status_code == 200
    site.http.cookies.clear()
    assert "set-cookie" in (await site.http.get("/search?token=only-open")).headers
    assert "set-cookie" in (await site.http.get("/search?token=all-of-it")).headers


async def test_questions_without_a_pause_are_refused_with_when_to_come_again(chat: WebSite) -> None:
    posts = (chat.http.post("/chat", json={"text": "hi"}) for _ in range(20))
    asked = await asyncio.gather(*posts)
    assert {each.status_code for each in asked} == {200, 429}
    refused = next(each for each in asked if each.status_code == 429)
    assert refused.headers["retry-after"]
    assert "wait" in refused.json()["error"]["message"]


async def test_a_token_too_long_to_guess_counts_while_others_at_its_address_guess(
    tmp_path: Path,
) -> None:
    settings = {"token": "all-of-it", "tokens": {"guests": {"token": "a" * 32, "channels": []}}}
    async with web_site(tmp_path, settings=settings) as site:
        for number in range(THRESHOLD):
            await by_header(site, f"guess {number}")
        assert (await by_header(site, "all-of-it")).status_code == 429
        assert (await by_header(site, "b" * 32)).status_code == 429
        assert (await by_header(site, "a" * 32)).status_code == 200
        assert (await by_form(site, "a" * 32)).status_code == 303
        assert (await by_header(site, "another guess")).status_code == 429


@pytest.mark.parametrize(
    ("proxies", "status"),
    [
        ({}, 429),
        ({"proxies": ["192.0.2.0/24"], "public_url": "http://logs.localhost"}, 429),
        ({"proxies": ["127.0.0.0/8"]}, 401),
        ({"public_url": "http://logs.localhost"}, 401),
    ],
)
async def test_only_a_configured_proxy_says_from_where_a_client_comes(
    tmp_path: Path, proxies: dict[str, object], status: int
) -> None:
    async with web_site(tmp_path, settings=SETTINGS | proxies) as site:
        for number in range(THRESHOLD + 1):
            headers = bearer(f"guess {number}") | {"x-forwarded-for": f"192.0.2.{number}"}
            answer = await site.http.get("/api/channels", headers=headers)
    assert answer.status_code == status
