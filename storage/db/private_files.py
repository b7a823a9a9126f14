"""Files that only the user who runs Terrarium may read: what people said, keys, states."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PATTERNS = ("*.db", "*.db-wal", "*.db-shm", "*.db.before-*", "run", "run/*")


def keep_private() -> None:
    """Let all files that this process makes from now on be for its user only (0600, 0700)."""
    os.umask(_OTHERS)


def make_folder(path: Path) -> None:
    """Make a folder for the user only, unless it is there. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file for the user only, or take the rights of others from the one that is
    there. Raises OSError."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return
    tighten(path)


def tighten(path: Path) -> None:
    """Take the rights of others from a file or folder of ours; what is not ours stays as it is."""
    with suppress(OSError):
        if mode := readable_mode(path):
            path.chmod(mode & ~_OTHERS)


def tighten_data(folder: Path) -> None:
    """Take the rights of others from what Terrarium keeps in a data folder. Earlier versions made
    these files as the umask of the user was."""
    for path in data_files(folder):
        tighten(path)


def data_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a data folder that nobody else is to read."""
    for pattern in _PATTERNS:
        yield from sorted(folder.glob(pattern))


def readable_mode(path: Path) -> int | None:
    """Return the mode of a file that others than its owner may use, None of any other."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return mode if mode & _OTHERS else None
