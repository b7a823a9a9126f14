"""A file that is either there and whole, or not there: for what nobody else may read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harnesses.logs.errors import OperationRefused

_PART = ".part"  # what a file ends with while it is being written


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """An empty file to write, which takes its place at `path` in the end; mode 600.

    Raises OperationRefused when there is a file already, unless `force`, or when none can be made.
    """
    if path.exists() and not force:
        raise OperationRefused(f"{path} is there already; --force replaces it")
    part = path.with_name(path.name + _PART)
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        raise OperationRefused(f"{path} cannot be written: {error.strerror}") from error
    try:
        yield part
        _fsync(part)
        part.replace(path)
    except OSError as error:
        raise OperationRefused(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _fsync(part: Path) -> None:
    """Wait until a file is on the disk."""
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
