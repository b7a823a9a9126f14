"""The copy of a database file that is made before a migration, for going back to the old version.

`irc.db.before-19` is `irc.db` as it was before its migration to version 19. Only the last copy of
each file is kept. It is removed after a week, or as soon as anybody is forgotten, because it still
has their data.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from storage.db.errors import Unavailable
from storage.db.private_files import make_file

_NAME = ".before-"  # between the name of the file and the version that it was migrated to
_PART = ".part"


def copy_before(path: Path, version: int) -> Path:
    """Copy the database at `path`, before its migration to `version`; return the copy's path.

    The caller holds the write lock, so that no other process writes to the file or copies it
    meanwhile. Raises Unavailable, in which case nothing has changed.
    """
    copy = path.with_name(f"{path.name}{_NAME}{version}")
    part = copy.with_name(copy.name + _PART)
    try:
        part.unlink(missing_ok=True)
        make_file(part)  # VACUUM INTO accepts an empty file, and keeps its mode of 0600
        # On another connection, since VACUUM is not allowed within the caller's transaction.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as reader:
            reader.execute("VACUUM INTO ?", [str(part)])
        # Data before name, name before return: after a power cut the copy is complete or missing.
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
    """Return the copies of a file, including an unfinished one."""
    return sorted(path.parent.glob(f"{path.name}{_NAME}*"))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
