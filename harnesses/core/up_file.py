"""The up file `DATA/run/up.json`: how other commands reach a running `terrarium up`.

Only its owner can read it (mode 600), because it contains an API key of the agent server. It is
removed when `up` ends; a file left behind by a killed `up` is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from storage.db.private_files import make_file
from storage.db.process_lock import is_held

_PATH = Path("run", "up.json")


class RunningUp(BaseModel):
    """The process id of `terrarium up`, the URLs of its servers, and the key for local commands.

    `irc_port` is the port of the embedded IRC server, None if another IRC server is used; `setup`
    the token of the page that writes the first configuration file, "" if there is a file.
    """

    pid: int
    server: str
    web: str | None
    irc_port: int | None
    key: str
    setup: str = ""


def read_up_file(data: Path) -> RunningUp | None:
    """Return the up file of a data folder; None if no `terrarium up` runs there, or if the file
    cannot be read, as by another user."""
    try:
        running = RunningUp.model_validate_json((data / _PATH).read_bytes())
    except (OSError, ValidationError):
        return None
    # A process id alone proves nothing: it may have been reused since `up` was killed, which is
    # common in containers. It is checked first because a probe of a free lock takes it for a
    # moment, in which an `up` could not start.
    try:
        os.kill(running.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # somebody else's process
        pass
    return running if is_held(data, "up") else None


@contextmanager
def published_up_file(data: Path, running: RunningUp) -> Iterator[None]:
    """Write the up file, and remove it on leaving. Raises OSError."""
    path = data / _PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    # The rename is atomic, so that no reader sees a part of it.
    written = path.with_suffix(".tmp")
    make_file(written)
    written.write_text(running.model_dump_json(), encoding="utf-8")
    written.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
