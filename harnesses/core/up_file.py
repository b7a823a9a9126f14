"""`DATA/run/up.json`: where a running `terrarium up` can be reached, for commands in other shells.

Only its owner can read it (mode 600), as it has a key of the agent server. It is removed when `up`
ends; one that a killed `up` has left behind does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError


class RunningUp(BaseModel):
    """The process of `terrarium up`, the URLs of its servers, and the key for local commands.

    `irc_port` is the port of the embedded IRC server, None where another one is used.
    """

    pid: int
    server: str
    web: str | None
    irc_port: int | None
    key: str


def read_up_file(data: Path) -> RunningUp | None:
    """Return what runs on a data folder; None when nothing does, or we may not read its file."""
    try:
        running = RunningUp.model_validate_json(_path(data).read_bytes())
    except (OSError, ValidationError):
        return None
    return running if _is_alive(running.pid) else None


@contextmanager
def published_up_file(data: Path, running: RunningUp) -> Iterator[None]:
    """Have the file there, and remove it at the end. Raises OSError."""
    path = _path(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}.tmp")
    written.unlink(missing_ok=True)
    file = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(running.model_dump_json())
    written.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _path(data: Path) -> Path:
    return data / "run" / "up.json"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's process
        return True
    return True
