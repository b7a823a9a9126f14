"""Atomic creation of private files: a file is complete or absent, and only its owner can read
it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harnesses.logs.errors import OperationRefused

_EXISTS = "{} is there already; --force replaces it"
_PART = ".part"  # suffix of a file that is being written


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty file of mode 600, which is moved to `path` at the end unless the block raises.

    Raises OperationRefused if the file cannot be written, or exists and is not to be replaced by
    `force`.
    """
    if path.exists() and not force:
        raise OperationRefused(_EXISTS.format(path))
    part = path.with_name(path.name + _PART)
    # O_EXCL follows no symbolic link that somebody else may have put there, and the mode is set
    # before there is anything to read.
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise OperationRefused(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield part
        _fsync(part)
        if not force:
            # Reserve the name: another process may have taken it since the look above.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        part.replace(path)
    except FileExistsError as error:
        raise OperationRefused(_EXISTS.format(path)) from error
    except OSError as error:
        raise OperationRefused(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _fsync(part: Path) -> None:
    """Wait until a file is on the disk: a crash after the move must not leave an empty one."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
