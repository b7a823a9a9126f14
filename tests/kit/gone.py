"""Waiting for processes to end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil

from tests.kit.patience import PATIENCE


async def gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until all processes have ended. Raises AssertionError after PATIENCE seconds."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while left := [process for process in processes if _runs(process)]:
        assert asyncio.get_running_loop().time() < deadline, f"left behind: {left}"
        await asyncio.sleep(0.02)  # polled, because only a parent is notified


def _runs(process: psutil.Process) -> bool:
    """Return True unless a process has ended. Zombies count as ended: a container may lack an
    init process that reaps orphans."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
