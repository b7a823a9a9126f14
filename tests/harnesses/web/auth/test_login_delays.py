"""Guessing tokens takes time, and so does asking without end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harnesses.web.auth.login_delays import FREE, LONGEST, LoginDelays
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.web_site import web_site

SETTINGS = {
    "token": "all-of-it",
    "tokens": {"guests": {"token": "only-open", "channels": ["irc/#open"]}},
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_delays_double_up_to_the_longest_for_one_address_only() -> None:
    clock = Clock()
    delays, seen = LoginDelays(clock), []
    for _ in range(FREE + 12):
        delays.failed("192.0.2.1")
        seen.append(delays.wait("192.0.2.1"))
        clock.now += seen[-1]
        assert delays.wait("192.0.2.1") == 0
    assert seen[: FREE + 2] == [0.0] * (FREE - 1) + [1.0, 2.0, 4.0]
    assert seen[-1] == LONGEST
    assert delays.wait("192.0.2.2") == 0
    delays.failed("192.0.2.1")
    delays.succeeded("192.0.2.1")
    assert delays.wait("192.0.2.1") == 0


def test_an_address_is_forgiven_after_an_hour() -> None:
    clock = Clock()
    delays = LoginDelays(clock)
    for _ in range(20):
        delays.failed("192.0.2.1")
    clock.now += 3601
    assert delays.wait("192.0.2.1") == 0
    delays.failed("192.0.2.1")
    assert delays.wait("192.0.2.1") == 0


async def test_after_some_wrong_tokens_even_the_right_one_has_to_wait(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings=SETTINGS) as site:
        for _ in range(FREE):
            assert (await site.http.post("/login", data={"token": "wrong"})).status_code == 401
        answer = await site.http.post("/login", data={"token": "all-of-it"})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        bearer = {"authorization": "Bearer all-of-it"}
        assert (await site.http.get("/api/channels", headers=bearer)).status_code == 200


async def test_a_link_with_a_narrow_token_leaves_a_wide_login_as_it_is(tmp_path: Path) -> None:
    async with web_site(tmp_path, settings=SETTINGS) as site:
        await site.http.post("/login", data={"token": "all-of-it"})
        answer = await site.http.get("/search?token=only-open")
        assert answer.status_code == 303
        assert "set-cookie" not in answer.headers
        assert (await site.http.get("/runs")).status_code == 200
        site.http.cookies.clear()
        assert "set-cookie" in (await site.http.get("/search?token=only-open")).headers
        assert "set-cookie" in (await site.http.get("/search?token=all-of-it")).headers


async def test_questions_without_a_pause_are_refused_with_when_to_come_again(
    tmp_path: Path,
) -> None:
    async with ScriptedOpenAI() as script, web_site(tmp_path, agent_url=script.url) as site:
        posts = (site.http.post("/chat", json={"text": "hi"}) for _ in range(20))
        asked = await asyncio.gather(*posts)
        assert {each.status_code for each in asked} == {200, 429}
        refused = next(each for each in asked if each.status_code == 429)
        assert refused.headers["retry-after"]
        assert "wait" in refused.json()["error"]["message"]
