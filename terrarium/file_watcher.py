"""Files that are read again while a process runs: when they change, or when SIGHUP comes."""

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
    """Go on whenever a file has come, gone or changed, or SIGHUP has come. Close it at the end
    (`contextlib.aclosing`), so that the signal means what it meant before."""
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
    return {path: _stamp(path) for path in files}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when the file does; None while an editor has it away."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
