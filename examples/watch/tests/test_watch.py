"""Tests of the watch tendril with a real address, disk and process, and the real outbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from terrarium_watch.tendril import WatchTendril

from terrarium import Config, Identity, Origin
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import ready, room_tendril, rooms_config
from tests.kit.serving import serving

pytestmark = pytest.mark.server


def config(data: Path, model: str, **watched: object) -> Config:
    tables = {
        "agent": {"api_url": model, "timezone": "UTC"},
        "watch": {"channel": "#ponds", "every": 0.002, "free": 0, **watched},
    }
    return Config(tables, None, data)


async def posts(tendril: WatchTendril, count: int) -> list[str]:
    """Wait for at least `count` posts in the outbox and return their texts."""
    async with asyncio.timeout(PATIENCE):
        while len(waiting := await tendril.outbox.waiting("irc")) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return [message.text for message in waiting]


async def test_each_change_is_said_once_also_after_a_restart(tmp_path: Path) -> None:
    status = 200

    async def answer(_request: Request) -> Response:
        return Response("", status)

    async with ScriptedOpenAI() as script, serving(Starlette(routes=[Route("/", answer)])) as url:
        watched = config(tmp_path, script.url, urls={"site": url})
        async with ready(WatchTendril(watched)) as tendril:
            assert [each["is_well"] for each in await tendril.watched()] == [True, True]
            status = 500
            failed = "site has a problem: it answers 500"
            assert await posts(tendril, 1) == [failed]
        async with ready(WatchTendril(watched)) as tendril:
            status = 200
            assert await posts(tendril, 2) == [failed, "site is well again: it answers 200"]


async def test_the_model_of_another_tendril_learns_whether_the_disk_is_full(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script:
        watched = config(
            tmp_path,
            script.url,
            disks={"root": "/"},
            processes={"tests": "pytest", "none": "no-such-program-7f3a"},
        )
        async with (
            ready(WatchTendril(watched)) as tendril,
            room_tendril(rooms_config(tmp_path, script.url)) as rooms,
        ):
            script.call("watched", {"name": "root"}).say("It has room.")
            answer = await rooms.peers.ask(
                "watch", "is the disk full?", Origin("rooms", Identity("ada"))
            )
            assert answer.text == "It has room."
            states = {each["name"]: each["is_well"] for each in await tendril.watched()}
        usage = os.statvfs("/")
        share = round(100 * usage.f_bavail / usage.f_blocks)
        result = str(script.requests[1]["messages"][-1]["content"])
        assert f"{share} % free" in result
    assert states["tests"] is True
    assert states["none"] is False
