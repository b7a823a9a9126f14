"""Traces of our files whose functions run, in any thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES

_FOLDERS = tuple(f"{ROOT / package}/" for package in PACKAGES)


class FileTrace:
    """Records our files whose functions run inside `noting`.

    Enter it before the threads to be traced start, because `threading.setprofile` only affects new
    threads.
    """

    def __init__(self) -> None:
        self._paths: set[str] | None = None

    def __enter__(self) -> FileTrace:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._paths = None

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """Yield a set that is filled on exit with the files' paths relative to the repository."""
        # Paths are filtered at the end only: a slow profile function would prolong each run, so
        # that timers expire in all of them and count.
        self._paths = paths = set[str]()
        files: set[str] = set()
        try:
            yield files
        finally:
            self._paths = None
            ours = (path for path in paths if path.startswith(_FOLDERS))
            files.update(Path(path).relative_to(ROOT).as_posix() for path in ours)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        paths = self._paths  # read once: another thread may set it to None
        if paths is not None and event == "call":
            paths.add(frame.f_code.co_filename)
