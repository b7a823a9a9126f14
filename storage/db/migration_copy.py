"""The copy of a database file that is made before its tables are changed: the way back.

`irc.db.before-19` is `irc.db` as it was before it was brought to version 19. Of each file only the
last copy is kept, and it goes a week later, or with the first person who is forgotten: it has
everybody in it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from storage.db.errors import Unavailable
from storage.db.private_files import make_file

_NAME = ".before-"  # stands between the name of a file and the version that it was brought to
_PART = ".part"


def copy_before(path: Path, version: int) -> Path:
    """Copy the database at `path` beside it, before it is brought to `version`; return the copy.

    The caller holds the lock for writing, so that nothing is written to the file meanwhile, and
    no other process copies it too. Raises Unavailable, and then nothing has changed.
    """
    copy = path.with_name(f"{path.name}{_NAME}{version}")
    part = copy.with_name(copy.name + _PART)
    try:
        part.unlink(missing_ok=True)
        make_file(part)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
            reader.execute("VACUUM INTO ?", [str(part)])
        _fsync(part)
        part.replace(copy)
        _fsync(path.parent)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise Unavailable(
            f"{path}: the copy that is made of it before a new version changes its tables cannot be"
            f" written ({error}); it needs {path.stat().st_size / 1e6:,.0f} MB in {path.parent};"
            " make room and start again, nothing has been changed"
        ) from error
    for older in copies(path):
        if older != copy:
            older.unlink(missing_ok=True)
    return copy


def copies(path: Path) -> list[Path]:
    """Return the copies of a file, also one that was never finished."""
    return sorted(path.parent.glob(f"{path.name}{_NAME}*"))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
