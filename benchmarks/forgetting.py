"""Crash safety of an erasure: two hundred kills and fifty full disks in the middle of one.

After each the bot is restarted, or asked again to forget the person, and no file may still contain
a byte of theirs. `KILLS=20 FULL_DISKS=5` makes it shorter. As root, a small tmpfs is mounted and
really filled; otherwise a limit on file sizes simulates a full disk.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figure import Figure, percentile
from terrarium.logging import configure
from tests.kit.forgetting import (
    Fault,
    ask,
    fill,
    forget_in_child,
    fresh_copy,
    leftovers,
    restart,
    small_disk,
)

KILLS = int(os.environ.get("KILLS", "200"))
FULL_DISKS = int(os.environ.get("FULL_DISKS", "50"))
DISK = 64 << 20  # bytes


async def figures() -> AsyncIterator[Figure]:
    """Yield the number of interrupted erasures, and of those that left data behind."""
    configure("bench", "error", "console")
    chosen = random.Random()
    with tempfile.TemporaryDirectory() as folder:
        whole, data = Path(folder, "whole"), Path(folder, "disk", "data")
        await asyncio.to_thread(_make_folders, whole, data.parent)
        await fill(whole)
        times = [_time_whole(whole, data) for _ in range(5)]
        killed, left = await _kill(whole, data, percentile(times, 0.5), chosen)
        yield Figure("a forgetting takes, median", percentile(times, 0.5) * 1000, "ms")
        yield Figure("forgettings that were killed", killed, "", least=KILLS)
        yield Figure("of these left something", left, "", goal=0)
        failed, left = await _fill_disks(whole, data, chosen)
        yield Figure("forgettings on a full disk", failed, "", least=FULL_DISKS)
        yield Figure("of these left something", left, "", goal=0)


def _make_folders(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)


def _time_whole(whole: Path, data: Path) -> float:
    """Return how many seconds an uninterrupted erasure takes.

    Raises RuntimeError if it does not complete or leaves data behind.
    """
    fresh_copy(whole, data)
    began = time.monotonic()
    if forget_in_child(data, Fault()) != "finished" or leftovers(data):
        raise RuntimeError("the forgetting fails by itself")
    return time.monotonic() - began


async def _kill(whole: Path, data: Path, took: float, chosen: random.Random) -> tuple[int, int]:
    """Kill erasures at random moments, every third a second time while it is being resumed.

    Returns the number of killed erasures, and of those that left data behind in the end. Erasures
    that finish before the kill are repeated.
    """
    killed = left = 0
    while killed < KILLS:
        await asyncio.to_thread(fresh_copy, whole, data)
        fault = Fault(kill_after=chosen.uniform(0, took))
        if await asyncio.to_thread(forget_in_child, data, fault) != "killed":
            continue
        killed += 1
        if killed % 3 == 0:
            again = Fault(kill_after=chosen.uniform(0, took))
            await asyncio.to_thread(forget_in_child, data, again, resumes=True)
        left += not await _is_finished(data, chosen)
    return killed, left


async def _fill_disks(whole: Path, data: Path, chosen: random.Random) -> tuple[int, int]:
    """Run erasures on a disk with a random amount of free space.

    Returns the number of erasures that failed, and of those that left data behind after they were
    resumed with enough space. Erasures that fit are repeated.
    """
    failed = left = 0
    with small_disk(data.parent, DISK) as is_mounted:
        while failed < FULL_DISKS:
            await asyncio.to_thread(fresh_copy, whole, data)
            room = chosen.randrange(sum(path.stat().st_size for path in _files(data)))
            fault = Fault() if is_mounted else Fault(longest_file=room)
            with _filled(data.parent, room if is_mounted else None):
                ended = await asyncio.to_thread(forget_in_child, data, fault)
            if ended == "finished":
                continue
            failed += 1
            left += not await _is_finished(data, chosen)
    return failed, left


async def _is_finished(data: Path, chosen: random.Random) -> bool:
    """Restart the bot or ask it again, at random; return True if no data is left then."""
    if chosen.random() < 0.5:
        await restart(data)
        # If the erasure was interrupted before its pending row was written, a restart has nothing
        # to resume: then asking again has to find events and erase them.
        if await asyncio.to_thread(leftovers, data):
            return (await ask(data)).events > 0 and not leftovers(data)
        return True
    return (await ask(data)).is_finished and not leftovers(data)


def _files(data: Path) -> Iterator[Path]:
    return (path for path in data.rglob("*") if path.is_file())


@contextmanager
def _filled(disk: Path, room: int | None) -> Iterator[None]:
    """Fill a disk up to `room` free bytes while the context is open; do nothing if it is None."""
    filler = disk / "filler"
    if room is not None:
        status = os.statvfs(disk)
        free = status.f_bavail * status.f_frsize
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free - room))
    try:
        yield
    finally:
        filler.unlink(missing_ok=True)
