"""File locks of the processes that use a data folder.

They allow only one tendril of a kind, keep every process that writes stores from running while a
command replaces or moves them, and let one process at a time do the work of a queue.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from storage.db.errors import StorageError, Unavailable
from storage.db.private_files import make_folder


class AlreadyRunning(StorageError):
    """Another process holds the lock: `command` names it, `pid` is its id, or "unknown"."""

    def __init__(self, command: str, data: Path, pid: str) -> None:
        self.command, self.pid = command, pid or "unknown"
        super().__init__(
            f"`{command}` already runs on {data} (process {self.pid}); stop that one, "
            "or choose another folder with --data DIR"
        )


@contextmanager
def hold_lock(data: Path, name: str, command: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock DATA/run/NAME.process.lock, `shared` with other shared holders or exclusive.

    `command` names this process in the messages of those that it keeps off. The kernel releases the
    lock however the process ends. Raises AlreadyRunning, and Unavailable if the folder cannot be
    written.
    """
    path = _lock_path(data, name)
    try:
        make_folder(path.parent)
        # "a+" does not truncate: until we have the lock, the file names its holder.
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise Unavailable(
            f"the data folder {data} cannot be written: {error.strerror}; "
            "choose another with --data DIR"
        ) from error
    with file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            # The holder may be another command than ours, such as a restore; older versions wrote
            # only their id.
            pid, _, holder = file.read().strip().partition(" ")
            raise AlreadyRunning(holder or "terrarium", data, pid) from error
        file.truncate(0)
        file.write(f"{os.getpid()} {command}\n")
        file.flush()
        yield


@asynccontextmanager
async def wait_for_lock(
    path: Path, pause: float, patience: float = math.inf
) -> AsyncIterator[None]:
    """Hold an exclusive lock on a file, which the kernel releases however the process ends; try to
    get it every `pause` seconds. Raises Unavailable if that fails, or after `patience` seconds."""
    until = time.monotonic() + patience
    try:
        make_folder(path.parent)
        file = path.open("a")
    except OSError as error:
        raise Unavailable(f"{path}: cannot be opened: {error.strerror}") from error
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise Unavailable(f"another process still holds {path}") from error
                await asyncio.sleep(pause)
        yield


def is_held(data: Path, name: str) -> bool:
    """Return True if a process holds the exclusive lock NAME of a data folder."""
    try:
        with _lock_path(data, name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody has ever held it
        return False
    return False


def _lock_path(data: Path, name: str) -> Path:
    return data / "run" / f"{name}.process.lock"
