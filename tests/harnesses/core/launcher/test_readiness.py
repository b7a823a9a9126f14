"""Waiting for what was started."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from harnesses.core.launcher.readiness import Check, tendril_ready, wait_until_ready
from harnesses.core.tendril.status import StatusFile


def after(*answers: str | None) -> Check:
    """A check that gives these answers in turn, the last one for ever."""
    left = list(answers)

    async def check() -> str | None:
        return left.pop(0) if len(left) > 1 else left[0]

    return check


async def test_it_waits_until_all_is_well_at_the_same_time_and_says_what_for() -> None:
    said, passed = asyncio.Queue[str](), list[str]()

    async def slow() -> str | None:
        passed.append(await said.get() if "gone" not in "".join(passed) else "")
        return None if "waiting for a: gone; b: asleep" in passed else "asleep"

    checks = {"a": after(None, "gone", None), "b": slow}
    await wait_until_ready(checks, said.put_nowait, every=0.01, pause=0)


async def test_it_says_nothing_when_it_need_not_wait_long() -> None:
    said: list[str] = []
    await wait_until_ready({"a": after("asleep", None)}, said.append, every=10)
    assert said == []


async def test_a_tendril_is_ready_when_the_process_that_runs_now_says_so(tmp_path: Path) -> None:
    pids: dict[str, int] = {}
    check = partial(tendril_ready, tmp_path, "irc", pids)
    assert await check() == "it is starting"
    status = StatusFile(tmp_path, "irc")
    status.ready()
    assert await check() == "it is starting"  # an earlier process of that name said so
    pids["irc"] = os.getpid()
    assert await check() is None
    status.waiting("not yet on irc")
    assert await check() == "not yet on irc"
