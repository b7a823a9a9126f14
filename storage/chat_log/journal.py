"""The journal: events that are not stored yet, in a local file, for when PostgreSQL is away.

A process that is killed meanwhile would lose what it has heard; the next one finds it here. Each
process has a file of its own and locks it, so that others take only those of dead processes.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter, ValidationError

from storage.chat_log.event import Event
from storage.db.errors import Unavailable
from storage.db.private_files import make_file, make_folder

_EVENT = TypeAdapter(Event)
_SUFFIX = ".journal"


class Journal:
    """The journal of this process, a tendril called `name`, in the folder `data`. Without space on
    the disk its events are in memory only."""

    def __init__(self, data: Path, name: str) -> None:
        self._data, self._name = data, name
        self._is_empty = True

    @contextmanager
    def hold(self) -> Iterator[Journal]:
        """Keep the file open within the block; delete it at the end if empty. Raises OSError."""
        path = self._data / "run" / f"{self._name}-{secrets.token_hex(4)}{_SUFFIX}"
        unlocked = path.with_suffix(".tmp")  # so that nobody takes it before it is locked
        make_folder(path.parent)
        make_file(unlocked)
        with unlocked.open("ab", buffering=0) as self._file:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            unlocked.rename(path)
            try:
                yield self
            finally:
                if self._is_empty:
                    path.unlink(missing_ok=True)

    def add(self, event: Event) -> None:
        """Append an event."""
        with suppress(OSError, ValueError):  # a full disk; text that is no Unicode
            self._file.write(_EVENT.dump_json(event) + b"\n")
            self._is_empty = False

    def clear(self) -> None:
        """Remove all events, which are stored by now."""
        if not self._is_empty:
            with suppress(OSError):
                self._file.truncate(0)
                self._is_empty = True

    @contextmanager
    def left_behind(self) -> Iterator[list[Event]]:
        """Yield events of dead processes with our name, then delete their files. Raises OSError."""
        with _taken(self._data, f"{self._name}-*{_SUFFIX}") as files:
            # Once each: an attempt to store them may have left a copy in another journal.
            yield list(dict.fromkeys(event for _, file in files for event in _read(file)))
            for path, _ in files:
                path.unlink(missing_ok=True)


def remove_events(data: Path, belongs: Callable[[Event], bool]) -> None:
    """Remove events from the journals of dead processes. Blocks. Raises Unavailable."""
    try:
        with _taken(data, f"*{_SUFFIX}") as files:
            for _, file in files:
                kept = [each for each in _read(file) if not belongs(each)]
                file.seek(0)
                file.truncate()
                file.writelines(_EVENT.dump_json(each) + b"\n" for each in kept)
    except OSError as error:
        raise Unavailable(f"{error.filename}: cannot be changed: {error.strerror}") from error


@contextmanager
def _taken(data: Path, pattern: str) -> Iterator[list[tuple[Path, IO[bytes]]]]:
    """Yield the matching journals that no process holds, locked."""
    files: list[tuple[Path, IO[bytes]]] = []
    with ExitStack() as opened:
        for path in sorted((data / "run").glob(pattern)):
            file = opened.enter_context(path.open("r+b"))
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                files.append((path, file))
        yield files


def _read(file: IO[bytes]) -> Iterator[Event]:
    for line in file.read().splitlines():
        with suppress(ValidationError):  # the last line may be incomplete
            yield _EVENT.validate_json(line)
