"""File watcher: asks for a reload when files change, and on SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path

POLL_INTERVAL = 1.0
"""Seconds between checks of the files."""

Files = Callable[[], Iterable[Path]]
"""Returns the files to watch; called at each check, as they may vary."""


async def changes(files: Files) -> AsyncGenerator[None, None]:
    """Yield whenever a file has appeared, vanished or changed, and on SIGHUP, whose handler is
    removed when the generator is closed (`contextlib.aclosing`)."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    # asyncio can handle signals in the main thread only; elsewhere only changes of files count.
    main = threading.current_thread() is threading.main_thread()
    if main:
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        seen = _stamps(files())
        while True:
            try:
                async with asyncio.timeout(POLL_INTERVAL):
                    await asked.wait()
            except TimeoutError:
                if _stamps(files()) == seen:
                    continue
            asked.clear()
            seen = _stamps(files())
            yield
    finally:
        if main:
            loop.remove_signal_handler(signal.SIGHUP)


def _stamps(files: Iterable[Path]) -> dict[Path, tuple[int, int, int] | None]:
    return {path: file_stamp(path) for path in files}


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a stamp that changes with the file; None while it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    # Inode and size also show a change within one tick of the file system's clock.
    return status.st_mtime_ns, status.st_ino, status.st_size
