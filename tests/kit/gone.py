"""Processes that ought to end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil

from tests.kit.patience import PATIENCE


async def gone(processes: Sequence[psutil.Process]) -> None:
    """Return when none of them does anything any more; fails when one still does after a while."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while left := [process for process in processes if _runs(process)]:
        assert asyncio.get_running_loop().time() < deadline, f"left behind: {left}"
        await asyncio.sleep(0.02)  # they are not our children: nobody tells us


def _runs(process: psutil.Process) -> bool:
    """Whether it does anything still; a container may have nobody who reaps orphans."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
