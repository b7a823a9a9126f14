"""Watching of files: a reload is due when they change, or on SIGHUP."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path

LOOK = 1.0
"""Seconds between looks at the files."""

Files = Callable[[], Iterable[Path]]
"""The files that count at the moment."""


async def changes(files: Files) -> AsyncGenerator[None, None]:
    """Yield whenever a file has appeared, vanished or changed, and on SIGHUP. Close it at the end
    (`contextlib.aclosing`), which removes the signal handler."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Signals reach the main thread only; elsewhere the files' times have to do.
    main = threading.current_thread() is threading.main_thread()
    if main:
        loop.add_signal_handler(signal.SIGHUP, asked.set)
    try:
        seen = _stamps(files())
        while True:
            try:
                async with asyncio.timeout(LOOK):
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
    return status.st_mtime_ns, status.st_ino, status.st_size
