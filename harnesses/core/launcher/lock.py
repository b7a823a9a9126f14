"""The lock that allows one supervisor for each data folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harnesses.core.errors import TendrilError


class AlreadyRunning(TendrilError):
    """Another `terrarium up` works on this data folder."""

    def __init__(self, data: Path, pid: str) -> None:
        super().__init__(
            f"`terrarium up` already runs on {data} (process {pid or 'unknown'}); stop that one, "
            "or choose another folder with --data DIR"
        )


@contextmanager
def hold_lock(data: Path) -> Iterator[None]:
    """Hold DATA/run/up.lock, which the kernel releases however this process ends.

    Raises AlreadyRunning, and TendrilError when the folder cannot be written.
    """
    path = data / "run" / "up.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise TendrilError(
            f"the data folder {data} cannot be written: {error.strerror}; "
            "choose another with --data DIR"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise AlreadyRunning(data, file.read().strip()) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
