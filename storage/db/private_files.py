"""Permissions of files that only their owner may read: messages, keys, states of processes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PATTERNS = ("*.db", "*.db-wal", "*.db-shm", "*.db.before-*", "run", "run/*")


def keep_private() -> None:
    """Set the umask so that files and folders that this process creates are for its user only."""
    os.umask(_OTHERS)


def make_folder(path: Path) -> None:
    """Create a folder for the user only; an existing one keeps its mode. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Create an empty file for the user only, or make an existing one so. Raises OSError."""
    # The mode is set at creation: with a later chmod others could open the file in between.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return
    tighten(path)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tighten(path: Path) -> None:
    """Revoke others' permissions on a file or folder; one that is not ours stays as it is."""
    with suppress(OSError):
        if mode := mode_if_exposed(path):
            path.chmod(mode & ~_OTHERS)


def tighten_data(folder: Path) -> None:
    """Revoke others' permissions on the files in a data folder, which earlier versions gave."""
    for path in data_files(folder):
        tighten(path)


def data_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a data folder that nobody else may read."""
    for pattern in _PATTERNS:
        yield from sorted(folder.glob(pattern))


def mode_if_exposed(path: Path) -> int | None:
    """Return the permission bits of a file if its group or others have any, else None."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return mode if mode & _OTHERS else None
